"""Continues a text with a folder of the layout genai, without torch: python genai.py FOLDER PROMPT [NUMBER]."""

import sys

import onnxruntime_genai


def generate(folder: str, prompt: str, number: int = 20) -> str:
    """Returns the prompt and the most probable tokens after it."""
    model = onnxruntime_genai.Model(folder)
    tokenizer = onnxruntime_genai.Tokenizer(model)
    tokens = tokenizer.encode(prompt)
    parameters = onnxruntime_genai.GeneratorParams(model)
    parameters.set_search_options(max_length=len(tokens) + number, do_sample=False)
    generator = onnxruntime_genai.Generator(model, parameters)
    generator.append_tokens(tokens)
    while not generator.is_done():
        generator.generate_next_token()
    return str(tokenizer.decode(generator.get_sequence(0)))


if __name__ == "__main__":
    print(generate(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))

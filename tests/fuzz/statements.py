"""The statements that random programs are made of.

A statement is a line (or a few lines) of Python with placeholders: ``{a}``, ``{b}``, ``{c}`` become earlier values and
``{out}`` the new one; ``{i}`` and ``{j}`` become small integers, ``{f}`` a number, and ``{dtype}`` a dtype. A statement
need not fit every operand: the generator tries it in eager mode first and draws another one where it raises an error.
"""

from __future__ import annotations

DTYPES = (
    "torch.float32", "torch.float64", "torch.float16", "torch.bfloat16", "torch.int64", "torch.int32", "torch.uint8",
    "torch.bool",
)  # fmt: skip

ELEMENTWISE = (
    "{out} = {a} + {b}", "{out} = {a} - {b}", "{out} = {a} * {b}", "{out} = {a} / ({b} * {b} + 1)",
    "{out} = {a} + {f}", "{out} = {f} - {a}", "{out} = {a} * {i}", "{out} = {a} // {i}", "{out} = {a} % {i}",
    "{out} = torch.maximum({a}, {b})", "{out} = torch.minimum({a}, {b})", "{out} = torch.fmod({a}, {f})",
    "{out} = torch.where({a} > {b}, {a}, {b})", "{out} = torch.where({a} > 0, {a}, {f})",
    "{out} = {a}.clamp(-1, {f})", "{out} = {a}.clamp(min={f})", "{out} = {a} ** 2", "{out} = {a}.abs().sqrt()",
    "{out} = {a}.sin()", "{out} = {a}.tanh()", "{out} = {a}.sigmoid()", "{out} = {a}.exp().log1p()", "{out} = -{a}",
    "{out} = {a}.floor()", "{out} = {a}.round()", "{out} = {a}.erf()",
    "{out} = {a}.reciprocal().nan_to_num(0, 9, -9)", "{out} = F.relu({a})", "{out} = F.gelu({a})",
    "{out} = F.gelu({a}, approximate='tanh')", "{out} = F.silu({a})", "{out} = F.hardswish({a})",
    "{out} = F.softplus({a})", "{out} = F.elu({a})", "{out} = F.leaky_relu({a}, {f})", "{out} = {a}.to({dtype})",
    "{out} = {a}.to({b}.dtype)", "{out} = {a}.float()", "{out} = {a}.half()", "{out} = {a}.bfloat16()",
    "{out} = {a}.double()", "{out} = {a}.long()", "{out} = {a}.int()", "{out} = {a} > {b}", "{out} = {a} == {b}",
    "{out} = {a} <= {f}", "{out} = ({a} > 0) & ({b} < 1)", "{out} = ({a} > 0) | ({b} > 0)",
    "{out} = ({a} > 0) ^ ({b} > 0)", "{out} = ~({a} > 0)", "{out} = {a} & {b}", "{out} = {a} << 1",
    "{out} = torch.addcmul({a}, {b}, {c}, value={f})", "{out} = torch.lerp({a}, {b}, {f})",
    "{out} = torch.atan2({a}, {b})", "{out} = torch.hypot({a}, {b})", "{out} = {a}.sign()", "{out} = {a}.isnan()",
    "{out} = torch.logaddexp({a}, {b})", "{out} = {a}.masked_fill({b} > 0, {f})", "{out} = {a}.trunc()",
)  # fmt: skip

REDUCTIONS = (
    "{out} = {a}.sum()", "{out} = {a}.sum({i})", "{out} = {a}.sum(-1, keepdim=True)", "{out} = {a}.mean({i})",
    "{out} = {a}.mean(-1, keepdim=True)", "{out} = {a}.amax({i})", "{out} = {a}.amin(0, keepdim=True)",
    "{out} = {a}.max({i}).values", "{out} = {a}.min(-1).values", "{out} = {a}.argmax({i})", "{out} = {a}.argmin(-1)",
    "{out} = {a}.var({i}, keepdim=True)", "{out} = {a}.std(-1)", "{out} = {a}.prod(0)", "{out} = ({a} > 0).any({i})",
    "{out} = ({a} > 0).all(-1)", "{out} = ({a} > 0).sum({i})", "{out} = torch.logsumexp({a}, {i})",
    "{out} = {a}.cumsum({i})", "{out} = {a}.cumsum(-1)", "{out} = torch.linalg.vector_norm({a}, dim={i})",
    "{out} = F.softmax({a}, {i})", "{out} = F.log_softmax({a}, -1)", "{out} = {a}.cummax({i}).values",
    "{out} = {a}.sort({i}).values", "{out} = {a}.sort(-1, descending=True).values", "{out} = {a}.topk(1, {i}).values",
    "{out} = {a}.median({i}).values", "{out} = {a}.count_nonzero({i})", "{out} = {a}.sum((0, 1))",
    "{out} = F.layer_norm({a}, {a}.shape[-1:])", "{out} = F.normalize({a}, dim={i})",
    "{out} = {a}.flip({i}).cumsum(0)",
)  # fmt: skip

VIEWS = (
    "{out} = {a}.flatten()", "{out} = {a}.flatten(1)", "{out} = {a}.reshape(-1, {a}.shape[-1])", "{out} = {a}.t()",
    "{out} = {a}.transpose(0, -1)", "{out} = {a}.transpose({i}, {j})", "{out} = {a}.unsqueeze({i})",
    "{out} = {a}.unsqueeze(-1)", "{out} = {a}.squeeze()", "{out} = {a}.squeeze({i})", "{out} = {a}[1:]",
    "{out} = {a}[:-1]", "{out} = {a}[..., 1:]", "{out} = {a}[..., ::2]", "{out} = {a}[-2:]", "{out} = {a}[0]",
    "{out} = {a}[..., -1]", "{out} = {a}[:, None]", "{out} = {a}.flip(0)", "{out} = {a}.flip(-1)",
    "{out} = {a}.roll(1, {i})", "{out} = {a}.roll(-{i}, 0)", "{out} = {a}.expand(2, *{a}.shape)",
    "{out} = {a}.repeat(2, 1)", "{out} = {a}.narrow(-1, 1, 2)", "{out} = {a}.movedim(0, -1)",
    "{out} = {a}.unfold(-1, 2, 1)", "{out} = {a}.tril()", "{out} = {a}.triu({i})", "{out} = {a}.diagonal()",
    "{out} = {a}.chunk(2, -1)[0]", "{out} = {a}.split(1)[0]", "{out} = {a}.unbind(-1)[1]",
    "{out} = {a}.view({a}.shape[0], -1)", "{out} = {a}.contiguous().view(-1)", "{out} = {a}.expand_as({b})",
    "{out} = {a}.broadcast_to({b}.shape)", "{out} = {a}.view_as({b})", "{out} = {a}.swapaxes(0, 1).contiguous()",
    "{out} = {a}.reshape({a}.shape[0], 2, -1)", "{out} = {a}.clone()", "{out} = {a}.repeat_interleave(2, {i})",
    "{out} = F.pad({a}, (1, {i}))", "{out} = F.pad({a}, (0, 0, {i}, 1), value={f})", "{out} = F.pad({a}, (-1, 0))",
    "{out} = {a}.tile(2)",
)  # fmt: skip

COMBINING = (
    "{out} = torch.cat([{a}, {b}])", "{out} = torch.cat([{a}, {b}], -1)", "{out} = torch.stack([{a}, {b}])",
    "{out} = torch.stack([{a}, {b}], -1)", "{out} = {a} @ {b}", "{out} = {a} @ {b}.transpose(-2, -1)",
    "{out} = F.linear({a}, self.weight)", "{out} = F.linear({a}, self.weight, self.bias)", "{out} = {a} + self.bias",
    "{out} = {a} * self.state", "{out} = torch.einsum('ij,kj->ik', {a}, {b})", "{out} = torch.outer({a}, {b})",
    "{out} = F.conv1d({a}.unsqueeze(1), self.kernel, padding=1)", "{out} = torch.bmm({a}, {b})",
    "{out} = F.scaled_dot_product_attention({a}, {b}, {b})", "{out} = torch.cdist({a}, {b})",
    "{out} = F.max_pool1d({a}, 2)", "{out} = F.avg_pool1d({a}, 3, 1, 1)",
    "{out} = F.interpolate({a}, scale_factor=2)", "{out} = F.cosine_similarity({a}, {b}, dim=-1)",
    "{out} = torch.addmm(self.bias, {a}, self.weight.t())",
)  # fmt: skip

INDEXING = (
    "{out} = {a}[{b}.long() % {a}.shape[0]]", "{out} = {a}.index_select(-1, {b}.flatten().long() % {a}.shape[-1])",
    "{out} = {a}[torch.arange({a}.shape[0] - 1, -1, -1)]", "{out} = {a}[..., torch.tensor([0, -1])]",
    "{out} = torch.gather({a}, -1, {b}.long() % {a}.shape[-1])", "{out} = {a}[{a} > 0]", "{out} = {a}[{b} > 0]",
    "{out} = torch.take_along_dim({a}, {a}.argsort(-1), -1)", "{out} = F.embedding({a}.long() % 3, self.weight[:3])",
    "{out} = {a}.scatter(-1, {b}.long() % {a}.shape[-1], {f})", "{out} = {a}.index_fill(0, torch.tensor([0]), {f})",
    "{out} = {a}.scatter_add(0, {b}.long() % {a}.shape[0], {a})",
    "{out} = {a}.index_add(0, torch.tensor([0, 1]), {a}[:2])", "{out} = F.one_hot({a}.long() % 4, 4)",
    "{out} = torch.nonzero({a} > 0)", "{out} = {a}.masked_select({b} > 0)",
    "{out} = {a}.index_put((torch.tensor([0, 1]),), {b}, accumulate=True)",
    "{out} = torch.searchsorted({a}.sort(-1).values, {b})",
    "{out} = torch.bucketize({a}, torch.tensor([-1.0, 0.0, 1.0]))", "{out} = {a}[:, {b}.long() % 2]",
)  # fmt: skip

SIZE_USES = (
    "{out} = {a} * {a}.shape[0]", "{out} = {a} + {a}.size(-1) // 2", "{out} = torch.arange({a}.shape[0])",
    "{out} = torch.arange({a}.shape[-1]).to({a}.dtype) + {a}", "{out} = torch.arange(0, 2 * {a}.shape[0], 2)",
    "{out} = torch.zeros({a}.shape[0], 3)", "{out} = torch.full(({a}.shape[-1],), {f})",
    "{out} = torch.ones_like({a})", "{out} = {a}.new_full(({a}.shape[0] + 1, 2), {f})",
    "{out} = torch.eye({a}.shape[0])", "{out} = {a} / {a}.numel()", "{out} = {a}[: {a}.shape[0] // 2 + 1]",
    "{out} = {a}.sum(0) / {a}.shape[0]", "{out} = {a}.reshape({a}.shape[0] * {a}.shape[1])",
    "{out} = torch.linspace(0, 1, {a}.shape[-1]) * {f}", "{out} = torch.tensor({a}.shape[0]) - {a}",
    "{out} = {a}.expand({b}.shape[0], *{a}.shape)", "{out} = torch.tril(torch.ones({a}.shape[0], {a}.shape[0]))",
)  # fmt: skip

WRITES = (
    "{a}.add_({b})\n{out} = {a}", "{a}.mul_({f})\n{out} = {a}", "{a}[0] = {f}\n{out} = {a}",
    "{a}[..., 0] = {b}[..., 0]\n{out} = {a}", "{a}.t().mul_(2)\n{out} = {a}", "{a}[1:].add_(1)\n{out} = {a}",
    "{a}.view(-1)[0].fill_({f})\n{out} = {a}", "{a}.masked_fill_({b} > 0, {f})\n{out} = {a}",
    "{a}.flatten().copy_({b}.flatten())\n{out} = {a}", "{a}[{a} > 0] = {f}\n{out} = {a}", "{a}.zero_()\n{out} = {a}",
    "{a}[::2] += {a}[::2]\n{out} = {a}", "{a}.transpose(0, -1)[0].sub_(1)\n{out} = {a}",
    "{out} = {a}.clone()\n{out}[:, 1:] = {b}[:, 1:]", "{out} = {a}.clone()\n{out}.diagonal().fill_({f})",
    "{out} = {a}.clone()\n{out}[..., -1] *= 2", "{out} = torch.empty_like({a}).fill_({f})",
    "{a}.clamp_(-1, 1)\n{out} = {a}", "self.state.add_(1)\n{out} = {a} + self.state",
    "self.state.copy_({a}.flatten()[:4])\n{out} = self.state * 2", "{out} = {a}.unbind(0)[0].add_(1) + {a}.sum(0)",
    "{out} = {a}.split(2, -1)[0].mul_(2)\n{out} = {out} + {a}.mean()",
)  # fmt: skip

CONTROL_FLOW = (
    "{out} = torch.cond({a}.sum() > {f}, lambda x: x + 1, lambda x: x * 2, ({a},))",
    "{out} = torch.cond({a}.amax() > {b}.amax(), lambda x, y: x - y, lambda x, y: x * y, ({a}, {b}))",
    "{out} = torch.cond({a}.shape[0] > 3, lambda x: x.sin(), lambda x: x.cos(), ({a},))",
    "{out} = while_loop(lambda i, x: i < {i}, lambda i, x: (i + 1, x * 0.5 + 1), (torch.tensor(0), {a}))[1]",
    "{out} = scan(lambda carry, x: (carry + x, carry * 2), {a}[0].clone(), {a})[1]",
    "{out} = control_map(lambda x: x.sin() + 1, {a})",
)  # fmt: skip

COMPLEX = (
    "{out} = torch.fft.rfft({a}.float().nan_to_num(0, 9, -9)).abs()",
    "{out} = torch.fft.fft({a}.float().nan_to_num(0, 9, -9), dim=0).real",
    "{out} = torch.view_as_real(torch.complex({a}.float(), {b}.float()))",
    "{out} = torch.complex({a}.float(), {b}.float()).angle()",
    "{out} = (torch.complex({a}.float(), {b}.float()) * (1 + 2j)).imag",
    "{out} = torch.polar({a}.float().abs(), {b}.float()).real",
    "{out} = torch.fft.irfft(torch.fft.rfft({a}.float().nan_to_num(0, 9, -9)), n=4)",
)  # fmt: skip

REGIONS = (
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n    {out} = F.linear({a}, self.weight)",
    "with torch.autocast('cpu', dtype=torch.bfloat16):\n    {out} = {a} @ {b}.transpose(-2, -1) + 1",
    "with torch.no_grad():\n    {out} = {a} * 2",
)  # fmt: skip

MENU: tuple[tuple[int, tuple[str, ...]], ...] = (
    (24, ELEMENTWISE), (14, REDUCTIONS), (18, VIEWS), (12, COMBINING), (10, INDEXING), (9, SIZE_USES), (8, WRITES),
    (3, CONTROL_FLOW), (3, COMPLEX), (2, REGIONS),
)  # fmt: skip
"""The groups of statements, each with its weight in the random choice."""

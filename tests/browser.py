"""A headless Chromium for tests of pages, driven through the WebDriver protocol (W3C) without further packages."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "ArrowDown": "\ue015", "ArrowRight": "\ue014", "Tab": "\ue004"}
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_START_SECONDS = 20


def missing() -> str:
    """Returns why no browser can be started; empty if one can."""
    names = {"chromedriver": ["chromedriver"], "Chromium": ["chromium", "chromium-browser", "google-chrome"]}
    absent = [name for name, commands in names.items() if not any(map(shutil.which, commands))]
    return f"{' and '.join(absent)} not installed" if absent else ""


class Browser:
    """One window."""

    def __init__(self, address: str) -> None:
        self._address = address
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        options = {"args": arguments, "binary": shutil.which("chromium") or shutil.which("google-chrome")}
        wanted = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        self._session = self._send("POST", "/session", {"capabilities": wanted})["sessionId"]

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from error

    def _do(self, path: str, body: Any) -> Any:
        return self._send("POST", f"/session/{self._session}{path}", body)

    def open(self, page: Path) -> float:
        """Opens a page and returns the milliseconds until its script is done."""
        self._do("/url", {"url": page.absolute().as_uri()})
        end = time.monotonic() + _START_SECONDS
        while self.run("return document.documentElement.dataset.ready") != "true":  # a busy machine may answer early
            assert time.monotonic() < end, self.messages()
            time.sleep(0.01)
        return float(self.run("return performance.getEntriesByType('navigation')[0].domComplete"))

    def run(self, script: str, *arguments: Any) -> Any:
        """Returns what a script returns."""
        return self._do("/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector: str) -> dict[str, str]:
        """Returns the first element of a CSS selector."""
        found: dict[str, str] = self._do("/element", {"using": "css selector", "value": selector})
        return found

    def click(self, selector: str) -> None:
        """Clicks on an element."""
        self._pointer(selector, press=True)

    def hover(self, selector: str) -> None:
        """Moves the pointer to an element."""
        self._pointer(selector, press=False)

    def _pointer(self, selector: str, *, press: bool) -> None:
        self.run("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        buttons = [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}] if press else []
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": self.find(selector)}
        actions = [{"type": "pointer", "id": "mouse", "actions": [move, *buttons]}]
        self._do("/actions", {"actions": actions})

    def press(self, *keys: str) -> None:
        """Presses keys: single characters, or names in ``KEYS``."""
        steps = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self._do("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": steps}]})

    def messages(self) -> list[str]:
        """Returns the messages of the console: errors of the page's scripts, and what its policy refused."""
        return [entry["message"] for entry in self._do("/se/log", {"type": "browser"})]

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Runs a command of the DevTools protocol."""
        return self._do("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width: int, height: int) -> None:
        """Gives the window a size in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)

    def screenshot(self, path: Path, *, width: int, height: int, dark: bool = False) -> None:
        """Writes a picture of the window."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.devtools("Emulation.setEmulatedMedia", features=features)
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        path.write_bytes(base64.b64decode(self._send("GET", f"/session/{self._session}/screenshot")))

    def close(self) -> None:
        """Closes the window."""
        self._send("DELETE", f"/session/{self._session}")


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Starts a browser, and ends it with its driver."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                window = Browser(f"http://127.0.0.1:{port}")
                break
            except urllib.error.URLError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        try:
            yield window
        finally:
            window.close()
    finally:
        driver.terminate()
        driver.wait(10)

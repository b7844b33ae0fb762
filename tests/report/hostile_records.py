"""Records that try to break out of whatever shows them."""

from __future__ import annotations

import json
from pathlib import Path

OWNED = "window.owned=1"
OUTPUTS = {
    "script": f"<script>{OWNED}</script>",
    "closing": f"</script></textarea></style></title><script>{OWNED}</script>",
    "handler": f'"><img src=x onerror="{OWNED}"><svg onload="{OWNED}"><a href="javascript:{OWNED}">x</a>',
    "comment": f"--><!--<script>{OWNED}</script>]]>{{{{ 7*7 }}}}{{% include '/etc/passwd' %}}",
    "ansi": "\x1b[2J\x1b[31mred\x1b[0m \x1b]0;owned\x07 \x9b31m \x1bP1$r\x1b\\",
    "bidi": "admin\u202e gnp.exe \u2066ok\u2069",
    "hidden": "pay\u200bpal \u2060\U000e0041\U000e0042 \ufeff" + "\u200b\u200c" * 12,
    "word": "A" * 1_000_000,
    "formula": '=HYPERLINK("http://evil.example","click") \n+cmd|\' /C calc\'!A0',
    "separators": "line\u2028para\u2029</SCRIPT\t><scr\x00ipt>",
}


def ordinary(i: int) -> dict[str, str]:
    """A record that no rule minds."""
    text = f"River {i} flows from the hills to the sea."
    return {"instruction": f"Name river number {i}.", "input": "", "output": text}


def write(folder: Path) -> Path:
    """A corpus with every hostile record between ordinary ones; its name is hostile too."""
    path = folder / "a<img src=x onerror=alert(1)>\u202e&'\".jsonl"
    lines = []
    for i, output in enumerate(OUTPUTS.values()):
        lines += [json.dumps(ordinary(20 * i + k)) for k in range(20)]
        lines.append(json.dumps({"instruction": output[:300], "input": "", "output": output}))
    raw = b'{"instruction": "a", "input": "", "output": "\xff\xfe <script>' + OWNED.encode() + b'</script>"}'
    path.write_bytes("\n".join(lines).encode("utf-8") + b"\n" + raw + b"\n")
    return path

"""The colours of all pictures, from internal/palette, for the scripts that draw those of the documentation."""
import pathlib
import re

TONES = re.findall(r'\{"(\w+)", 0x(\w+), 0x(\w+)\}', (pathlib.Path(__file__).parent / "../internal/palette/palette.go").read_text())


def sheet(rules):
    """Returns a style element with these rules for light and for dark mode, whose colours are variables such as var(--c0)."""
    light = dark = rules
    for name, by_day, by_night in TONES:
        light, dark = light.replace(f"var(--{name})", f"#{by_day}"), dark.replace(f"var(--{name})", f"#{by_night}")
    return f"<style>{light}@media (prefers-color-scheme:dark){{{dark}}}</style>"

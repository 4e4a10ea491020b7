"""What tests ask Chromium about a page: the title of its verdict, and how far it is too wide or too faint."""

VERDICT = "document.getElementById('verdict-title').textContent"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

CONTRAST = """
(() => {
  const channel = (c) => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (each) => {
    for (; each; each = each.parentElement) {
      const color = numbers(getComputedStyle(each).backgroundColor);
      if (color.length === 3) return color;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const each of document.querySelectorAll("body *")) {
    const text = [...each.childNodes].filter((node) => node.nodeType === 3 && node.data.trim()).length;
    if (!text || each.closest("svg") || !each.checkVisibility()) continue;
    const [a, b] = [light(numbers(getComputedStyle(each).color)), light(behind(each))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) faint.push([each.className, each.textContent]);
  }
  return faint;
})()
"""
"""Texts whose contrast with what is behind them is below 4.5, as WCAG's level AA asks for."""

#!/usr/bin/env python3
"""Lines of code that the series adds to the package, file by file, patched beside unpatched.

A line counts when a token of code starts, ends or lies on it: blank lines, comments and docstrings do not. Generated bindings
(runtime/autogen) and the viewer's assets are left out, as upstream leaves them out of its own count.
"""
import io, pathlib, sys, tokenize
from _trees import die, installed, table, trees

CODE = {tokenize.OP, tokenize.NAME, tokenize.NUMBER, tokenize.STRING, *(getattr(tokenize, f"FSTRING_{p}") for p in ("START", "MIDDLE", "END")
        if hasattr(tokenize, f"FSTRING_{p}"))}
SKIP = ("tinygrad/runtime/autogen/", "tinygrad/viz/assets/")

def code_lines(text:str) -> int:
  lines: set[int] = set()
  for t in tokenize.generate_tokens(io.StringIO(text).readline):
    docstring = t.type == tokenize.STRING and t.string.startswith('"""') and t.line.lstrip().startswith('"""')
    if t.type in CODE and not docstring: lines.update(range(t.start[0], t.end[0]+1))
  return len(lines)

def count(tree:str) -> dict[str, int]:
  files = ((f, f.relative_to(tree).as_posix()) for f in pathlib.Path(tree, "tinygrad").rglob("*.py"))
  return {name: code_lines(f.read_text(encoding="utf-8")) for f,name in files if not name.startswith(SKIP)}

def main(args:list[str]) -> int:
  if args: die("lines.py takes no arguments")
  base, new = (count(d or installed()) for d in trees().values())
  if not base or not new: die("a tree without Python files")
  rows = [[n, f"{base.get(n, 0):,}", f"{new.get(n, 0):,}", f"{new.get(n, 0) - base.get(n, 0):+,}"] for n in sorted(base.keys() | new.keys())
          if base.get(n) != new.get(n)]
  total = [sum(c.values()) for c in (base, new)]
  table([["file", "unpatched", "patched", "added"], *rows, ["whole package", *(f"{t:,}" for t in total), f"{total[1]-total[0]:+,}"]])
  return 0

if __name__ == "__main__": sys.exit(main(sys.argv[1:]))

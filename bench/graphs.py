#!/usr/bin/env python3
"""Kernels, copies, ops and bytes moved of small programs, patched beside unpatched. Usage: graphs.py [graph ...] | --record [graph ...] | --list

Fails when a graph has more kernels or copies, more bytes moved, or more than a thousandth more ops than on the unpatched package.
"""
import json, sys
from _trees import RECORD, Side, both, check, ratio, recorded, table, trees

OPS_SLACK = 1.001

def side(names:list[str]):
  from tinygrad.helpers import tqdm
  from _graphs import GRAPHS, measure
  print(json.dumps({n: measure(n) for n in tqdm(names or list(GRAPHS), unit=" graphs", disable=None)}))

def worse(base:dict[str, int], new:dict[str, int]) -> list[str]:
  return [k for k in ("kernels", "copies", "moved") if new[k] > base[k]] + (["ops"] if new["ops"] > base["ops"]*OPS_SLACK else [])

def main(args:list[str]) -> int:
  if args[:1] == ["--side"]: return side(args[1:]) or 0
  if args[:1] == ["--record"]:
    got = (recorded() if args[1:] else {}) | Side(trees()["base"], __file__, *args[1:]).result()
    RECORD.write_text("{\n" + ",\n".join(f"{json.dumps(n)}: {json.dumps(c)}" for n,c in got.items()) + "\n}\n")
    print(f"recorded {len(got)} graphs in {RECORD}")
    return 0
  if args == ["--list"]:
    print("\n".join(recorded()))
    return 0
  check(args)
  res = both(__file__, *args)
  rows, bad = [["graph", "kernels", "", "copies", "", "ops", "", "ratio", "moved", "", ""]], 0
  for n, new in res["new"].items():
    w = worse(base:=res["base"][n], new)
    bad += len(w) > 0
    mark = "WORSE: " + ", ".join(w) if w else "better" if worse(new, base) else ""
    cells = {k: [f"{base[k]:,}", f"{new[k]:,}"] if base[k] or new[k] else ["", ""] for k in ("kernels", "copies", "ops", "moved")}
    rows.append([n, *cells["kernels"], *cells["copies"], *cells["ops"], ratio(new["ops"], base["ops"]) if base["ops"] else "", *cells["moved"], mark])
  table(rows)
  print(f"\n{len(rows)-1} graphs, {bad} worse, {sum(r[-1] == 'better' for r in rows)} better (each pair: unpatched, patched)")
  return int(bad > 0)

if __name__ == "__main__": sys.exit(main(sys.argv[1:]))

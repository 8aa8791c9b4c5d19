"""Runs the same script against two trees: the unpatched package (TINYGRAD_BASE) and the patched one (TINYGRAD_NEW, or else the installed one)."""
import importlib.util, json, os, pathlib, subprocess, sys, tempfile
from typing import NoReturn

def die(msg:str) -> NoReturn:
  print(f"bench: {msg}", file=sys.stderr)
  sys.exit(2)

# counted on the unpatched package: graphs.py --record
RECORD = pathlib.Path(__file__).parent/"graphs_0.14.0.json"
def recorded() -> dict[str, dict[str, int]]: return json.loads(RECORD.read_text()) if RECORD.exists() else {}
def check(names:list[str]):
  if (known:=recorded()) and (unknown:=[n for n in names if n not in known]): die(f"no graph is named {unknown[0]}: graphs.py --list gives all")

def trees() -> dict[str, str|None]:
  if not (base:=os.getenv("TINYGRAD_BASE")): die("TINYGRAD_BASE is not set: the folder that holds the unpatched tinygrad/ (./run bench sets it)")
  ret = {"base": base, "new": os.getenv("TINYGRAD_NEW") or None}
  for name, d in ret.items():
    if d is not None and not pathlib.Path(d, "tinygrad", "__init__.py").is_file(): die(f"TINYGRAD_{name.upper()}={d} holds no tinygrad/")
  return ret

def installed() -> str:
  """The folder of the installed package, found without importing it."""
  if (spec:=importlib.util.find_spec("tinygrad")) is None or spec.origin is None: die("tinygrad is not installed: ./run job installs it")
  return str(pathlib.Path(spec.origin).parents[1])

class Side:
  """One run of a script against a tree, in a process of its own, without caches that outlive it. The script prints one line of JSON at its end."""
  def __init__(self, tree:str|None, script:str, *args:str, quiet=False, env:dict[str, str]|None=None):
    self.tmp = tempfile.TemporaryDirectory()
    # python -P keeps the working directory, which may hold a part of the package, off the path
    env = {**os.environ, **(env or {}), "DEV": "NULL"}
    env |= {"CACHEDB": f"{self.tmp.name}/cache.db", "CCACHE": "0", "PARALLEL": "0", "DEBUG": "0", "PYTHONHASHSEED": "0"}
    env["PYTHONPATH"] = os.pathsep.join(p for p in (tree, str(pathlib.Path(__file__).parent), *env.get("PYTHONPATH", "").split(os.pathsep)) if p)
    cmd = [sys.executable, "-P", script, "--side", *args]
    self.name = f"{pathlib.Path(script).name} against {tree or 'the installed tinygrad'}"
    self.p = subprocess.Popen(cmd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL if quiet else None)
  def result(self):
    out, _ = self.p.communicate()
    self.tmp.cleanup()
    if self.p.returncode != 0: die(f"{self.name} failed with exit code {self.p.returncode}")
    return json.loads(out.splitlines()[-1])

def both(script:str, *args:str) -> dict:
  sides = {name: Side(tree, script, *args, quiet=name == "base") for name, tree in trees().items()}
  return {name: s.result() for name, s in sides.items()}

def table(rows:list[list[str]]):
  widths = [max(map(len, col)) for col in zip(*rows)]
  for r in rows: print("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i,(c,w) in enumerate(zip(r, widths))).rstrip())
def ratio(new:float, base:float) -> str: return f"x{new/base:.3f}" if base else "-" if not new else "from 0"

"""the environment that ./run works in: .venv, with the patched package in it and a compiler where the machine has none"""
import hashlib, json, os, shutil, subprocess, sys, tomllib, venv
from pathlib import Path
from series import PATCHES, ROOT, Refused, base, upto, read, version

VENV = ROOT/".venv"
PYTHON = VENV/"bin/python"
STATE = VENV/"series.json"
ZIG = "ziglang==0.17.1"

def say(text:str) -> None: print(f"-- {text}", file=sys.stderr, flush=True)

def known() -> dict:
  try: return json.loads(STATE.read_text())
  except (OSError, ValueError): return {}

def inside() -> bool: return Path(sys.prefix).resolve() == VENV.resolve()

def make() -> None:
  """a .venv of the Python that runs this, anew where it is missing, broken, or of another one"""
  if inside() or (known().get("python") == sys.version and PYTHON.exists()): return
  say(f"making .venv with Python {sys.version.split()[0]}")
  try: venv.create(VENV, clear=True, with_pip=True)
  except (ImportError, OSError, subprocess.CalledProcessError) as e:
    raise Refused(f"Python {sys.version.split()[0]} can't make .venv: it needs its venv module (apt install python3-venv) and room ({e})") from e
  STATE.write_text(json.dumps({"python": sys.version}))

def have(requirements:list[str], why:str) -> None:
  state = known()
  if not (new := sorted(set(requirements) - set(state.get("have", [])))): return
  say(f"installing {' '.join(new)}")
  base.pip("install", "-q", *new, hint=why)
  STATE.write_text(json.dumps(known() | {"have": sorted({*state.get("have", []), *new})}))

def compiler() -> bool:
  """whether the machine needs ours"""
  path = os.pathsep.join(p for p in os.get_exec_path() if Path(p).resolve() != VENV/"bin")
  return not os.environ.get("CC") and not shutil.which("clang", path=path)

def tools(groups:tuple[str, ...]) -> None:
  """what a command needs besides the package"""
  pyproject = tomllib.loads((ROOT/"pyproject.toml").read_text())
  if groups and compiler():
    have([ZIG], f"no C compiler (neither CC nor clang on PATH), and {ZIG} could not be downloaded: install clang, or set CC, or try again online")
    zig = next(VENV.glob("lib/python*/site-packages/ziglang/zig"))
    (wrapper:=VENV/"bin/clang").write_text(f'#!/bin/sh\nexec "{zig}" clang "$@"\n')
    wrapper.chmod(0o755)
  needs = [r for r in pyproject["build-system"]["requires"] if not r.startswith("tinygrad")]
  for g in groups: needs += pyproject["dependency-groups"][g]
  have(needs, "packages could not be downloaded: this needs the network once, or their wheels in a folder named by PIP_FIND_LINKS")
  base.fetch()

def package() -> None:
  """the patched package, up to the stage that SERIES_UPTO names, anew when a file that makes it has changed"""
  where = os.environ.get("SERIES_UPTO")
  upto(read(), where)
  h = hashlib.sha256(version(where).encode())
  for f in sorted([ROOT/"pyproject.toml", ROOT/"setup.py", *PATCHES.rglob("*"), *(ROOT/"series").rglob("*.py"), *(ROOT/"tinygrad").rglob("*")]):
    if f.is_file() and "__pycache__" not in f.parts: h.update(f"{f.relative_to(ROOT)}\0".encode() + f.read_bytes())
  if known().get("package") == h.hexdigest(): return
  from series import apply  # needs what tools() installs
  apply.build(where)        # says what is wrong in one line, which pip would not
  say(f"installing tinygrad {version(where)}")
  base.pip("install", "-q", "--no-deps", "--no-index", "--no-build-isolation", "--force-reinstall", str(ROOT), hint="the package did not build")
  STATE.write_text(json.dumps(known() | {"package": h.hexdigest()}))

def environ(**more:str) -> dict[str, str]:
  """for what runs in .venv; an empty value unsets"""
  env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PATH": f"{VENV/'bin'}{os.pathsep}{os.environ.get('PATH', '')}"}
  if compiler(): env["CC"] = str(VENV/"bin/clang")
  env |= more
  return {k: v for k, v in env.items() if v or k not in more}

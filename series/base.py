"""the base: the one release that the patches fit, found among the installed or fetched into .upstream/, and verified"""
import base64, hashlib, subprocess, sys, tempfile, zipfile
from importlib.metadata import Distribution, distributions
from pathlib import Path
from series import BASE, ROOT, Refused

UPSTREAM = ROOT/".upstream"
WHEEL = "sha256:d2a5bea33c637fdf105963632329876b3d3253d38295ac1ffd2ff81646d93be3"
PACKAGE = "fa2460c23688254ecf254677486a22be90edf2c4729ba3809f3e3d48a1076235"

def digest(files:dict[str, bytes]) -> str:
  return hashlib.sha256("".join(f"{hashlib.sha256(files[f]).hexdigest()}  {f}\n" for f in sorted(files)).encode()).hexdigest()

def load(folder:Path) -> dict[str, bytes]:
  """every file of the package in folder, by its path there"""
  found = sorted((folder/"tinygrad").rglob("*"))
  return {str(f.relative_to(folder)): f.read_bytes() for f in found if f.is_file() and "__pycache__" not in f.parts}

def verified(dist:Distribution) -> dict[str, bytes]:
  where = Path(str(dist.locate_file("")))
  if digest(files:=load(where)) == PACKAGE: return files
  # the release's own record of its files tells which one it is
  record = {str(f): f.hash.value for f in dist.files or () if f.hash and f.parts[0] == "tinygrad"}
  own = {f: base64.urlsafe_b64encode(hashlib.sha256(x).digest()).decode().rstrip("=") for f, x in files.items()}
  odd = [f for f in sorted(record.keys() | own.keys()) if record.get(f) != own.get(f)] or ["a file"]
  fix = "delete .upstream" if where == UPSTREAM else f"pip install --force-reinstall tinygrad==={BASE}"
  more = f" (nor are {len(odd)-1} more)" if len(odd) > 1 else ""
  raise Refused(f"{odd[0]} in {where} is not the one of tinygrad {BASE}{more}: {fix}, then try again")

def find() -> tuple[dict[str, bytes], bytes]:
  """the package's files and its license"""
  seen = []
  for dist in distributions(name="tinygrad", path=[str(UPSTREAM), *sys.path]):
    if dist.version == BASE: return verified(dist), (dist.read_text("licenses/LICENSE") or "").encode()
    seen.append(dist.version)
  raise Refused(f"the patches need tinygrad {BASE}, found {' and '.join(sorted(set(seen))) or 'none'}: "
                f"pip install tinygrad==={BASE}, or build without --no-build-isolation")

def pip(*args:str, hint:str) -> None:
  done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *args], capture_output=True, text=True)
  if done.returncode:
    said = [l for l in (done.stderr + done.stdout).splitlines() if l.startswith("ERROR")] or done.stderr.splitlines() or ["no word from pip"]
    raise Refused(f"{hint} (pip: {said[-1].removeprefix('ERROR: ')})")

def fetch() -> None:
  if UPSTREAM.exists(): return
  with tempfile.TemporaryDirectory(dir=ROOT, prefix=".upstream-") as tmp:
    (pin:=Path(tmp, "pin")).write_text(f"tinygrad==={BASE} --hash={WHEEL}\n")
    pip("download", "-q", "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(pin), "-d", tmp,
        hint=f"tinygrad {BASE} could not be downloaded: this needs the network once, or its wheel in a folder named by PIP_FIND_LINKS")
    with zipfile.ZipFile(next(Path(tmp).glob("*.whl"))) as z: z.extractall(new:=Path(tmp, "new"))
    new.rename(UPSTREAM)

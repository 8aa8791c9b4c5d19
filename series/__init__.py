"""the series: which patches there are and in which order, where a stage begins, and the own modules that a patch brings"""
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATCHES = ROOT/"patches"
BASE, RELEASE = "0.14.0", "1"
HEAD = """# quilt's format, written by ./run save: the patches in order
# 'stage NAME' opens a stage, 'brings FILE...' names the own modules that ship from that patch on
"""

class Refused(Exception): """what is wrong and what to do about it, in one line"""

@dataclass(frozen=True)
class Patch:
  file: str
  stage: str
  brings: tuple[str, ...] = ()
  @property
  def name(self) -> str: return re.sub(r"^\d+-|\.patch$", "", self.file)

def read(folder:Path=PATCHES) -> list[Patch]:
  if not (folder/"series").is_file(): raise Refused(f"{folder}/series is missing: restore it with git checkout, or write it with ./run save")
  found, stage = [], ""
  for n, line in enumerate((folder/"series").read_text(errors="replace").splitlines(), 1):
    if m := re.fullmatch(r"# stage (\S+)", line): stage = m[1]
    elif m := re.fullmatch(r"([\w.+-]+\.patch)(?:\s+# brings (.+))?", line): found.append(Patch(m[1], stage, tuple((m[2] or "").split())))
    elif line.strip() and not line.startswith("#"): raise Refused(f"patches/series:{n}: can't read {line!r}: make it 'NAME.patch  # brings FILE...'")
  for p in found:
    if not (folder/p.file).is_file(): raise Refused(f"patches/{p.file} is missing, patches/series names it: restore it, or delete its line")
    if [q.name for q in found].count(p.name) > 1: raise Refused(f"patches/{p.file}: another patch is named {p.name} too: reword its subject in tree/")
  for f in sorted(x.name for x in folder.glob("*.patch")):
    if f not in [p.file for p in found]: raise Refused(f"patches/{f} stands nowhere in patches/series: give it a line there, or delete it")
  return found

def stages(series:list[Patch]) -> list[str]: return list(dict.fromkeys(p.stage for p in series))

def upto(series:list[Patch], where:str|None) -> int:
  """the number of patches up to and with a stage or a patch; 'base' has none of them"""
  if not where: return len(series)
  if where == "base": return 0
  stage = re.sub(r"^stage[-_. ]?", "", where)
  if hits := [i for i, p in enumerate(series, 1) if p.stage == stage or where in (p.file, p.file[:-6], p.name)]: return hits[-1]
  raise Refused(f"no stage or patch is named {where}: the stages are {', '.join(['base', *stages(series)])}, the patches stand in patches/series")

def version(where:str|None=None) -> str:
  label = re.sub(r"[^a-z0-9]+", ".", where.lower()).strip(".") if where else ""
  return f"{BASE}+symbolicmulti.{RELEASE}" + (f".{'stage' if label.isdigit() else ''}{label}" if label else "")

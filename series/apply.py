"""the applier: a patch onto the base's files in memory, without git, every file checked by its blob id before and after"""
import hashlib, io, re, shutil
from pathlib import Path
from unidiff import Hunk, PatchedFile, PatchSet, UnidiffParseError
from series import PATCHES, ROOT, Refused, base, read, upto

NONE = "0"*40
HEADER = re.compile(r"(diff --git |--- |\+\+\+ |index [0-9a-f]{40}\.\.[0-9a-f]{40}( 100644)?$|(new|deleted) file mode 100644$)")

def blob(data:bytes|None) -> str: return NONE if data is None else hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

def sides(hunk:Hunk) -> tuple[list[str], list[str]]:
  old:list[str] = []
  new:list[str] = []
  last:list[list[str]] = []
  for line in hunk:
    if line.line_type == "\\":  # the line before it ends its file without a newline
      for side in last: side[-1] = side[-1][:-1]
    else:
      last = [old] * (not line.is_added) + [new] * (not line.is_removed)
      for side in last: side.append(line.value)
  return old, new

def patched(pf:PatchedFile, data:bytes|None, loose:bool) -> bytes|None:
  if pf.is_removed_file: return None
  lines, shift = io.StringIO((data or b"").decode(errors="surrogateescape")).readlines(), 0
  for hunk in pf:
    old, new = sides(hunk)
    said = hunk.source_start - (hunk.source_length > 0)
    at = said + shift
    if loose:  # a patch before it is left out: the nearest place that reads the same
      at = min((i for i in range(len(lines)-len(old)+1) if lines[i:i+len(old)] == old), key=lambda i: abs(i-said-shift), default=at)
    if lines[at:at+len(old)] != old: raise Refused(f"line {hunk.source_start} of {pf.path} does not read as the patch expects")
    lines[at:at+len(old)] = new
    shift = at - said + len(new) - len(old)
  return "".join(lines).encode(errors="surrogateescape")

def changes(mail:bytes, files:dict[str, bytes], loose:bool=False) -> dict[str, bytes|None]:
  """what a patch makes of the files that it touches: their new text, None where it deletes"""
  found:dict[str, bytes|None] = {}
  start = mail.find(b"\ndiff --git ") + 1
  if start == 0: return found
  for pf in PatchSet(io.StringIO(mail[start:].decode(errors="surrogateescape"))):
    info = [l.rstrip("\n") for l in pf.patch_info or ()]
    ids = next((l.split()[1].split("..") for l in info if l.startswith("index ")), None)
    if bad := [l for l in info if l.strip() and not HEADER.match(l)]: raise Refused(f"{pf.path}: {bad[0]!r} is not supported")
    if ids is None: raise Refused(f"{pf.path}: the line with the file's blob ids is missing")
    if not loose and blob(files.get(pf.path)) != ids[0]: raise Refused(f"{pf.path} is not the one that the patch was made for")
    found[pf.path] = patched(pf, files.get(pf.path), loose)
    if not loose and blob(found[pf.path]) != ids[1]: raise Refused(f"{pf.path} does not come out as recorded, so the patch was edited by hand")
  return found

def steps(files:dict[str, bytes], folder:Path=PATCHES, where:str|None=None, without:str|None=None):
  """each patch of the series and what it changes; files follows along"""
  series, loose = read(folder), False
  for p in series[:upto(series, where)]:
    if p.name == without:
      loose = True
      continue
    try: changed = changes((folder/p.file).read_bytes(), files, loose)
    except (Refused, UnidiffParseError) as e:
      raise Refused(f"patches/{p.file} does not fit tinygrad {base.BASE}: {e}: restore it, or make the change in tree/ and ./run save") from e
    for f, data in changed.items():
      if data is None: files.pop(f, None)
      else: files[f] = data
    yield p, changed

def own(p) -> dict[str, bytes]:
  for f in p.brings:
    if not (ROOT/f).is_file(): raise Refused(f"{f} is missing, patches/{p.file} brings it: restore it, or drop its Brings: line in tree/")
  return {f: (ROOT/f).read_bytes() for f in p.brings}

def build(where:str|None=None, without:str|None=None, folder:Path=PATCHES) -> dict[str, bytes]:
  """the files of the patched package"""
  files, modules = base.find()[0], {}
  for p, _ in steps(files, folder, where, without): modules.update(own(p))
  if both := sorted(files.keys() & modules.keys()): raise Refused(f"{both[0]} is upstream's: an own module needs another name")
  return files | modules

def write(files:dict[str, bytes], folder:Path) -> None:
  shutil.rmtree(folder/"tinygrad", ignore_errors=True)
  for f, data in files.items():
    (folder/f).parent.mkdir(parents=True, exist_ok=True)
    (folder/f).write_bytes(data)
    (folder/f).chmod(0o644)

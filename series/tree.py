"""tree/: the series as a git history to edit and rebase, one commit a patch; save writes patches/ from it"""
import email, email.policy, hashlib, os, re, shutil, subprocess, tempfile
from pathlib import Path
from series import HEAD, PATCHES, ROOT, Patch, Refused, apply, base, read

TREE = ROOT/"tree"
WHO = "tinygrad <base@localhost>"
FORMAT = """format-patch --quiet --always --irreversible-delete --zero-commit --no-signature --full-index --no-stat --no-renames --keep-subject
  --no-thread --no-ext-diff --no-textconv --diff-algorithm=myers --no-indent-heuristic --inter-hunk-context=0 -U1""".split()

def git(folder:Path, *args:str, data:bytes|None=None) -> str:
  """git's answer, untouched by the user's own settings"""
  env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
  env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
  try: done = subprocess.run(["git", "-C", str(folder), *args], input=data, capture_output=True, env=env)
  except FileNotFoundError as e: raise Refused("git is not there: tree, save, check and export need it, job and test do not") from e
  if done.returncode: raise Refused(f"git {args[0]} in {folder}: {(done.stderr.decode(errors='replace').strip().splitlines() or ['failed'])[-1]}")
  return done.stdout.decode(errors="surrogateescape")

# *** commits from patches

def letter(mail:bytes) -> tuple[str, str, str]:
  """author, date and message of a patch"""
  head = email.message_from_bytes(mail, policy=email.policy.default.clone(max_line_length=None))
  body = mail.partition(b"\n\n")[2].partition(b"\ndiff --git ")[0] if b"\n\n" in mail else b""
  who = head["From"].addresses[0]
  return f"{who.display_name} <{who.addr_spec}>", str(head["Date"]), f"{head['Subject']}\n\n{body.decode().strip()}".strip() + "\n"

def commit(ref:str, who:str, date:str, text:str, changed:dict[str, bytes|None], parent:str, modes:dict[str, str]) -> bytes:
  """a commit, as git fast-import reads it"""
  out = [f"commit {ref}\nauthor {who} {date}\ncommitter {who} {date}\ndata {len(text.encode())}\n{text}\n".encode()]
  if parent: out.append(f"from {parent}\n".encode())
  for f, data in changed.items():
    if data is None: out.append(f"D {f}\n".encode())
    else: out.append(f"M {modes.get(f, '100644')} inline {f}\ndata {len(data)}\n".encode() + data + b"\n")
  return b"".join(out)

def fill(repo:Path, ref:str, start:str="", folder:Path=PATCHES, modules:bool=False, modes:dict[str, str]={}) -> None:
  """commits the series on ref, on top of the commit start or of a new base commit"""
  files = base.find()[0]
  stream = [] if start else [commit(ref, WHO, "Thu, 01 Jan 1970 00:00:00 +0000", f"tinygrad {base.BASE}\n", dict(files), "", modes),
                             f"reset refs/tags/base\nfrom {ref}\n\n".encode()]
  for p, changed in apply.steps(files, folder):
    stream.append(commit(ref, *letter((folder/p.file).read_bytes()), changed | (apply.own(p) if modules else {}), start, modes))
    start = ""
  git(repo, "fast-import", "--quiet", "--date-format=rfc2822", data=b"".join(stream))

def init(repo:Path) -> None:
  git(repo, "init", "-q", "-b", "main")
  for k, v in {"core.autocrlf": "false", "diff.plain.xfuncname": "^\\b$", "commit.gpgsign": "false"}.items(): git(repo, "config", k, v)
  (repo/".git/info").mkdir(exist_ok=True)
  # no function names after @@: they would quote a line of upstream's
  (repo/".git/info/attributes").write_text("* -text diff=plain\n")

def own_files() -> list[str]:
  return [str(f.relative_to(ROOT)) for f in sorted((ROOT/"tinygrad").rglob("*")) if f.is_file() and "__pycache__" not in f.parts]

def link(repo:Path) -> None:
  """the own modules stand in the repository and are seen, but not tracked, in the tree"""
  files = own_files()
  (repo/".git/info/exclude").write_text("".join(f"/{f}\n" for f in files) + "__pycache__/\n")
  for gone in (f for f in (repo/"tinygrad").rglob("*") if f.is_symlink() and not f.exists()): gone.unlink()
  for f in files:
    (repo/f).parent.mkdir(parents=True, exist_ok=True)
    if not (repo/f).exists(): (repo/f).symlink_to(os.path.relpath(ROOT/f, (repo/f).parent))

# *** patches from commits

def export(repo:Path, folder:Path) -> None:
  """patches/ as the commits of repo give it, written to folder"""
  if git(repo, "rev-list", "--merges", "base..HEAD"): raise Refused("tree/ has a merge commit: rebase it onto the tag base, then ./run save")
  if git(repo, "rev-list", "HEAD", "--not", "base") and git(repo, "merge-base", "base", "HEAD").strip() != git(repo, "rev-parse", "base^{}").strip():
    raise Refused("tree/ does not stand on its tag base: rebase it, then ./run save")
  git(repo, *FORMAT, "-o", str(folder), "base..HEAD")
  lines, stage = [HEAD], None
  for f in sorted(folder.glob("*.patch")):
    text = letter(f.read_bytes())[2]
    if m := re.search(r"^(---|diff -|Index: ).*", text, re.M): raise Refused(f"{f.name}: the line {m[0]!r} of its message reads as a diff: reword it")
    said = re.findall(r"^Stage: *(\S+)$", text, re.M)
    if not said and stage is None: raise Refused(f"{f.name}: the first commit names no stage: add a line 'Stage: NAME' to its message")
    if said and said[-1] != stage: lines.append(f"# stage {(stage:=said[-1])}\n")
    brings = " ".join(re.findall(r"^Brings: *(\S+)$", text, re.M))
    # a short name outlives a reworded subject: tests are tied to it
    if m := re.search(r"^Patch: *([\w.+-]+)$", text, re.M): f = f.rename(f.with_name(f"{f.name[:4]}-{m[1]}.patch"))
    lines.append(f.name + (f"  # brings {brings}" if brings else "") + "\n")
  (folder/"series").write_text("".join(lines))
  stages = [l for l in lines if l.startswith("# stage ")]
  if twice := [l for l in stages if stages.count(l) > 1]: raise Refused(f"stage {twice[0].split()[2]} is opened twice: put its commits together")

def claimed(series:list[Patch]) -> None:
  """each own module is there, and one patch brings it"""
  brought = [f for p in series for f in p.brings]
  for f in own_files():
    if (n:=brought.count(f)) != 1: raise Refused(f"{f}: {n} patches bring it: one commit in tree/ needs the line 'Brings: {f}', then ./run save")
  for p in series:
    if odd := [f for f in p.brings if not f.startswith("tinygrad/")]: raise Refused(f"patches/{p.file} brings {odd[0]}, not a file in tinygrad/")
    apply.own(p)

def stamp(folder:Path=PATCHES) -> str:
  return hashlib.sha256(b"".join(f.name.encode() + f.read_bytes() for f in sorted(folder.iterdir()))).hexdigest()

def saved(commit_id:str) -> None: (TREE/".git/series").write_text(f"{commit_id}\n{stamp()}\n")

def state() -> tuple[str, bool, bool]:
  """HEAD, whether it has work that is not in patches/, whether patches/ has changed since"""
  at, was = git(TREE, "rev-parse", "HEAD").strip(), (TREE/".git/series").read_text().split()
  busy = any((TREE/".git"/d).exists() for d in ("rebase-merge", "rebase-apply")) or bool(git(TREE, "status", "--porcelain"))
  return at, busy or at != was[0], was[1] != stamp()

def tree(force:bool) -> None:
  if TREE.exists() and not force:
    link(TREE)
    at, unsaved, stale = state() if (TREE/".git/series").is_file() else ("", True, True)
    if unsaved: raise Refused("tree/ has work that is not in patches/: commit it and ./run save, or throw it away with ./run tree --force")
    if not stale: return print(f"tree/ is up to date: {at[:12]}")
  series = read()
  with tempfile.TemporaryDirectory(dir=ROOT, prefix="tree-") as tmp:
    (new:=Path(tmp, "tree")).mkdir()
    init(new)
    fill(new, "refs/heads/main")
    git(new, "reset", "-q", "--hard", "main")
    if TREE.exists(): TREE.rename(Path(tmp, "old"))
    new.rename(TREE)
  link(TREE)
  saved(head:=git(TREE, "rev-parse", "HEAD").strip())
  print(f"tree/ has {len(series)} patches as commits on the tag base: {head[:12]}")

def save(force:bool) -> None:
  if not TREE.is_dir(): raise Refused("tree/ is missing, there is nothing to save: ./run tree makes it")
  if git(TREE, "status", "--porcelain") or any((TREE/".git"/d).exists() for d in ("rebase-merge", "rebase-apply")):
    raise Refused("tree/ has changes that are in no commit, or a rebase under way: finish it, then ./run save")
  at, _, stale = state()
  if stale and not force: raise Refused("patches/ has changed since tree/ was made: ./run tree first, or overwrite it with ./run save --force")
  with tempfile.TemporaryDirectory(dir=ROOT, prefix="tree-") as tmp:
    (new:=Path(tmp, "patches")).mkdir()
    export(TREE, new)
    proved(TREE, new)
    claimed(read(new))
    for f in PATCHES.iterdir():
      if f.suffix != ".patch" and f.name != "series": shutil.copy2(f, new)
    PATCHES.rename(Path(tmp, "old"))
    new.rename(PATCHES)
  link(TREE)
  saved(at)
  print(f"patches/ has {len(read())} patches")

def proved(repo:Path, folder:Path) -> None:
  """the applier and git agree on every file"""
  files = base.find()[0]
  for _ in apply.steps(files, folder): pass
  ours = {f: ("100644", apply.blob(data)) for f, data in files.items()}
  theirs = {f: (mode, blob) for mode, _, blob, f in (l.split(maxsplit=3) for l in git(repo, "ls-tree", "-r", "HEAD").splitlines())}
  if odd := sorted(f for f in ours.keys() | theirs.keys() if ours.get(f) != theirs.get(f)):
    raise Refused(f"{odd[0]}: the patches do not give what its commits hold (only plain files of mode 644 can be patched)")

def check() -> None:
  claimed(series:=read())
  apply.build()
  with tempfile.TemporaryDirectory(dir=ROOT, prefix="tree-") as tmp:
    (repo:=Path(tmp, "tree")).mkdir()
    (new:=Path(tmp, "patches")).mkdir()
    init(repo)
    fill(repo, "refs/heads/main")
    git(repo, "reset", "-q", "--soft", "main")
    proved(repo, PATCHES)
    export(repo, new)
    ours, fresh = ({f.name: f.read_bytes() for f in d.iterdir() if f.suffix == ".patch" or f.name == "series"} for d in (PATCHES, new))
    if odd := sorted(f for f in ours.keys() | fresh.keys() if ours.get(f) != fresh.get(f)):
      raise Refused(f"patches/{odd[0]} is not as ./run save writes it: ./run tree, then ./run save --force")
  print(f"{len(series)} patches apply, agree with git and are as ./run save writes them")

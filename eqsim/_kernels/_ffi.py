"""Structures of XLA's foreign-function interface, as LLVM types.

The layouts are those of `xla/ffi/api/c_api.h`, version 0.3, which jaxlib contains. Each field
is addressed by its name. Structures of later versions have more fields at the end.
"""


class Struct:
    """A structure in memory.

    **Arguments:**

    - `name`: name of the LLVM type.
    - `fields`: name and type of each field, in order; a type is LLVM's, or a structure.
    """

    def __init__(self, name: str, **fields: "str | Struct"):
        self.name, self.fields = f"%{name}", fields

    @property
    def declaration(self) -> str:
        """The definition of the LLVM type."""
        kinds = [x.name if isinstance(x, Struct) else x for x in self.fields.values()]
        return f"{self.name} = type {{ {', '.join(kinds)} }}"

    @property
    def size(self) -> str:
        """The size in bytes, as a constant expression."""
        return f"ptrtoint (ptr getelementptr ({self.name}, ptr null, i32 1) to i64)"

    def at(self, pointer: str, path: str) -> str:
        """Return the expression of the address of a field; `path` may go through fields
        that are structures, as in `arguments.values`."""
        numbers, struct = [], self
        for name in path.split("."):
            assert isinstance(struct, Struct), f"{name} is in no structure"
            numbers.append(f"i32 {list(struct.fields).index(name)}")
            struct = struct.fields[name]
        return f"getelementptr {self.name}, ptr {pointer}, i32 0, {', '.join(numbers)}"


_HEAD = dict(size="i64", extension="ptr")
"""First fields of most structures: the size, and a list of extensions."""
VERSION = Struct("Version", **_HEAD, major="i32", minor="i32")
EXTENSION = Struct("Extension", size="i64", kind="i32", next="ptr")
METADATA = Struct("Metadata", size="i64", version=VERSION, traits="i32", state="i64")
METADATA_EXTENSION = Struct("MetadataExtension", base=EXTENSION, metadata="ptr")
BUFFER = Struct("Buffer", **_HEAD, kind="i32", data="ptr", rank="i64", shape="ptr")
VALUES = Struct("Values", **_HEAD, count="i64", kinds="ptr", values="ptr")
FRAME = Struct(
    "Frame",
    **_HEAD,
    api="ptr",
    context="ptr",
    stage="i32",
    arguments=VALUES,
    results=VALUES,
)
API = Struct(
    "Api",
    **_HEAD,
    version=VERSION,
    internal="ptr",
    error_create="ptr",
    error_message="ptr",
    error_destroy="ptr",
    handler_register="ptr",
    stream="ptr",
    type_register="ptr",
    execution_context="ptr",
    state_set="ptr",
    state_get="ptr",
    memory_allocate="ptr",
    memory_free="ptr",
    pool_schedule="ptr",
    pool_threads="ptr",
)
ERROR = Struct("Error", **_HEAD, error="ptr")
NEW_ERROR = Struct("NewError", **_HEAD, message="ptr", code="i32")
POOL_THREADS = Struct("PoolThreads", **_HEAD, context="ptr", count="ptr")
POOL_TASK = Struct("PoolTask", **_HEAD, context="ptr", task="ptr", data="ptr")
STRUCTS = [
    VERSION,
    EXTENSION,
    METADATA,
    METADATA_EXTENSION,
    BUFFER,
    VALUES,
    FRAME,
    API,
    ERROR,
    NEW_ERROR,
    POOL_THREADS,
    POOL_TASK,
]
METADATA_KIND = 1
"""Kind of the extension by which XLA asks for metadata."""
EXECUTE = 3
"""Stage in which a call computes."""
INTERNAL = 13
"""Code of an internal error."""

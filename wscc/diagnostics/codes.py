"""The codes of all diagnostics, each with the text that `wscc explain CODE` prints. A code is never reused.

W0xx language, W1xx model (shapes, names), W2xx strategy and partition, W3xx machine and placement,
W4xx memory, W5xx artifact and run, W6xx textual IR and passes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Code(StrEnum):
    """The code of a kind of mistake, as it is printed."""

    SYNTAX = "W001"
    UNREADABLE = "W002"
    LIMIT = "W003"
    UNIT = "W004"
    NUMBER = "W005"
    OPTION = "W006"
    DUPLICATE = "W007"
    UNKNOWN_NAME = "W008"
    UNKNOWN_KEY = "W009"
    MISSING = "W010"
    CHOICE = "W011"
    SHAPE = "W101"
    ARGUMENTS = "W102"
    STRUCTURE = "W103"
    CYCLE = "W104"
    CONFIG = "W105"
    DEGREE = "W201"
    UNEVEN = "W202"
    NO_SEARCH = "W203"
    CALL_TABLE = "W204"
    CALL_ORDER = "W205"
    NO_STRATEGY = "W206"
    TOO_MANY_DIES = "W301"
    DISCONNECTED = "W302"
    NO_PATH = "W303"
    OFF_MESH = "W304"
    OUT_OF_MEMORY = "W401"
    ARTIFACT = "W501"
    DEADLOCK = "W502"
    DATA = "W503"
    CHECK = "W504"
    WEIGHTS = "W505"
    WORKER = "W506"
    DIVERGED = "W507"
    BAD_IR = "W601"
    BROKEN_PASS = "W602"
    PASS_ORDER = "W603"


# One text per code: the mistake, an example, and the fix. A test demands all three of each.
CODES: Final[dict[Code, str]] = {
    Code.SYNTAX: """\
The text does not follow the grammar of the language at the marked place.

Example:
    optimizer adamw(lr = )
                         ^ expected an expression

Fix: the message lists what may stand there. Line breaks mean nothing, so the cause may be the end of the
line before. The whole grammar is `grammar/wsl.lark`.""",
    Code.UNREADABLE: """\
The file cannot be read: it does not exist, is a directory, a pipe, a socket or a device, may not be read, or
is a text that is not UTF-8. Only regular files are read: others could keep the program waiting, or never end.

Example:
    wscc compile models/         `models/` is a directory

Fix: give the path of a `.wsl` file saved as UTF-8.""",
    Code.LIMIT: """\
The input is larger than the compiler accepts: the file, the nesting of brackets, the length of an expression,
a number, a `repeat` count, or what the blocks become when every call is written out.

Example:
    repeat 1e12 as layer { ... }

Fix: the message gives the limit. Name the parts of a long expression; put the body of a long chain of blocks
into one `repeat`, which is never unrolled.""",
    Code.UNIT: """\
A quantity has no unit, an unknown one, or the unit of another kind of quantity.

Example:
    sram 80                      is that bytes, kilobytes, megabytes?
    latency 200 GB               seconds are wanted

Fix: write the unit after the number: `80 MB`, `200 ns`, `4 TB/s`, `1800 TFLOP/s`, `5 pJ/bit`.
kB MB GB TB are powers of 1000; KiB MiB GiB TiB are powers of 1024.""",
    Code.NUMBER: """\
A number is not of the kind that is wanted here: not an integer, not positive, out of range, or the result of
a division that leaves a remainder. Sizes are exact integers and are never rounded.

Example:
    model gpt(d = 768, heads = 10) { param w : [d, d / heads] ... }      768 / 10 is not an integer

Fix: change one of the numbers; the message says which values they have.""",
    Code.OPTION: """\
An option of the command line is malformed, or names something that the program does not have.

Example:
    wscc compile gpt.wsl --set train.bacth=32

Fix: the message gives the form of the option and the nearest name that exists.""",
    Code.DUPLICATE: """\
The same thing is said twice, so that one of the two would be ignored.

Example:
    batch 64  batch 32

Fix: remove one of them, or give one another name. The message shows both places.""",
    Code.UNKNOWN_NAME: """\
A name is used that nothing before it defines.

Example:
    h = layernrom(x, g, b)       did you mean `layernorm`?

Fix: correct the spelling, or define the name above its use. Names made inside `repeat` end with it; a block
sees only its own arguments.""",
    Code.UNKNOWN_KEY: """\
A section has no field, setting or argument of this name.

Example:
    die { sramm 80 MB }          did you mean `sram`?

Fix: the message lists the names that exist.""",
    Code.MISSING: """\
Something that has no default was left out.

Example:
    train gpt on w { optimizer adamw(lr = 1e-3) }         no `batch`

Fix: add it; the message shows how.""",
    Code.CHOICE: """\
A word stands where one of a few others is wanted.

Example:
    recompute everything         none, selective or full

Fix: use one of the words in the message.""",
    Code.SHAPE: """\
The shapes of tensors do not fit together.

Example:
    x = h @ w                    h is [8, 64, 128] and w is [256, 512]: 128 is not 256

Fix: the message shows both shapes, dimension by dimension; change the parameter that it marks.""",
    Code.ARGUMENTS: """\
An operation or block is called with too few, too many or unknown arguments, or gives another number of
results than there are names for.

Example:
    h = layernorm(x, g)          layernorm(x, gain, bias)

Fix: the message shows the call as it is defined.""",
    Code.STRUCTURE: """\
The parts of the model are not where they may be: no `loss`, `return` outside a block, a `repeat` inside a
`repeat`, an assignment to a parameter.

Example:
    model m() { input x : i32[batch, 8] }                 no loss

Fix: the message says what belongs where.""",
    Code.CYCLE: """\
A block calls itself, directly or through others, so that it would never end.

Example:
    block a(x) { y = b(x)  return y }
    block b(x) { y = a(x)  return y }

Fix: break the cycle; use `repeat` to do a thing several times.""",
    Code.CONFIG: """\
The `config.json` of a checkpoint describes a model that this language cannot say exactly, or is not of a kind
that `wscc import` knows: GPT-2, OPT, GPT-NeoX, Llama, Qwen2, Qwen3, Mistral, Granite, Phi-3,
StableLM, Gemma, BLOOM and others.

Example:
    "rope_scaling": {"rope_type": "yarn", "factor": 8.0}      frequencies that `rope` does not have

Fix: the message names the field. Import another variant of the model, or change the field if you mean to
train the plain model.""",
    Code.DEGREE: """\
The degree of an axis of the strategy does not divide what the axis must split.

Example:
    parallel tp = 3              with 4 heads and a width of 64

Fix: the message gives the sizes; the help names changes with which the program compiles: each was tried.""",
    Code.UNEVEN: """\
A tensor cannot be cut into equal parts for all dies, and this compiler only makes equal parts.

Example:
    seq = 63 with tatp = 2

Fix: change the size or the degree; the help names changes with which the program compiles: each was tried.""",
    Code.NO_SEARCH: """\
`parallel auto` leaves the strategy to a search, which is many compilations and made only where asked for.

Example:
    parallel auto

Fix: `wscc compile -O3` searches and compiles the best; `wscc search` shows what there is, for `--parallel`.""",
    Code.CALL_TABLE: """\
The file given with `--call-order` is no table of the calls of this program: a line has another form, names
a call, layer or micro-batch that its stage does not have, or a call is made twice or never.

Example:
    stage 0
    block.fwd   0..3   0
    block.fwd   3      0         layer 3 again

Fix: begin with the table that `wscc call-order MODEL` prints with the same options, and only move lines,
split them or merge them: every call must stay, once.""",
    Code.CALL_ORDER: """\
In the order of the table given with `--call-order` a call would read what is not there yet, overwrite what is
still needed, or stages would wait for one another in a circle.

Example:
    block.bwd   3..0   1         above block.fwd of micro-batch 1

Fix: the message names both calls and their lines; put the one that must come first above the other. On each
stage a micro-batch goes forward before it goes backward, and no sooner than on the stages that feed it.""",
    Code.NO_STRATEGY: """\
No strategy fits the model on the wafer: every product of degrees for its dies, and for fewer, is refused.

Example:
    parallel auto                175 billion parameters on four dies of 72 GB

Fix: the message counts refusals by code, each with an example, and names the strategy that comes nearest.""",
    Code.TOO_MANY_DIES: """\
The strategy needs more dies than the wafer has alive.

Example:
    parallel dp = 4, tp = 4      on a 2 x 4 wafer: 16 dies of 8

Fix: lower a degree (the product of all is the number of dies), or take a larger mesh.""",
    Code.DISCONNECTED: """\
Dead dies and links cut the wafer into parts that cannot reach one another, or no choice of circuits was
found that joins all dies of the program.

Example:
    mesh 2 x 2   dead die (0, 1)   dead die (1, 0)

Fix: use a strategy that fits on the largest part, or other dies; the message lists the parts. With
circuits, let more links be up at a die: the help says how many are enough.""",
    Code.NO_PATH: """\
An algorithm of `wscc collective` finds no ring or chain of neighbours, or a die that it starts at is dead.

Example:
    wscc collective all_gather --mesh 3x3 --dead die:0,1 --bytes 1MB --algorithm ring

Fix: take an algorithm that every connected mesh has, or name live dies; the help says which. In programs,
groups without a path are routed over several links, with a warning.""",
    Code.OFF_MESH: """\
A coordinate is not on the mesh, or a link does not join two neighbours.

Example:
    mesh 2 x 4   dead die (2, 0)          rows are 0 and 1

Fix: coordinates are (row, column), counted from 0; a link joins dies that share an edge.""",
    Code.OUT_OF_MEMORY: """\
The tensors of a die do not fit in its memory.

Example:
    hbm 16 GB with 24 GB of weights and optimizer state on die (0, 0)

Fix: the message lists the largest tensors; the help names changes that were tried, and fit.""",
    Code.ARTIFACT: """\
A compiled artifact is damaged, incomplete or of another version, or says what cannot be: a number beyond
its limit, an array outside the memory, programs that its graph does not need. All of it is checked first.

Example:
    wscc run out/                with "stages": 0 in out/manifest.json

Fix: compile again. The message names the file and the field.""",
    Code.DEADLOCK: """\
Dies wait for one another in a circle, so that the program would never end.

Example:
    die (0, 0) waits for (0, 1), which waits for (0, 0)

Fix: this is a fault of the artifact, not of the model: compile again and report it.""",
    Code.DATA: """\
The data to train on do not fit the model. A text is shorter than one sequence, or holds bytes that are not
tokens of the vocabulary. Named arrays are damaged, lack an input or have another one, are of another shape or
type, have fewer rows than a batch, or hold a number that the model cannot take.

Example:
    data "notes.txt"             a text in UTF-8, with a vocabulary of 128
    data "pairs.npz"             `tokens[3, 17]` is 300, and the vocabulary has 256 tokens

Fix: the message gives the sizes, or the array with its first wrong element. A vocabulary of 256 takes any
text; 128 takes plain ASCII. Arrays are [rows, positions] for each input, integers of any width; only labels
may be -100, where they do not count.""",
    Code.CHECK: """\
Checked mode found a program that reads memory which nothing has written, touches memory that a message is
using, or rounds numbers more often than their types say. Its results cannot be trusted.

Example:
    die (0, 1), `block.fwd` instruction 12: `a` reads bytes that nothing has written

Fix: this is a fault of the artifact, not of the model: compile again and report it.""",
    Code.WEIGHTS: """\
A file of weights is damaged, or does not hold the parameters of the model: tensors are missing, too many, or
of another shape or type.

Example:
    wscc run gpt.wsl --weights llama.safetensors

Fix: the message lists the tensors. `wscc import config.json` writes the model that belongs to a checkpoint.
F16, BF16, F32 and F64 are read.""",
    Code.WORKER: """\
One of the processes that share the work of a command, such as running the dies or looking at strategies,
could not be started, or has ended or failed. The others are ended then.

Example:
    worker 1 of 2 was ended by SIGKILL (signal 9) while running a step

Fix: SIGKILL comes from people, and from systems that run out of memory. Take a smaller model, or do the work
in one process: `wscc run --threads 1`, `wscc search --jobs 1`.""",
    Code.DIVERGED: """\
Training has diverged: after a step, the loss, a gradient, a moment of the optimizer or a weight was NaN or
infinite. The run ends with this step, and no file of weights is written.

Example:
    optimizer sgd(lr = 9e5)      the weights overflow in the second step

Fix: the message names the step, what holds the number, and the die. A lower `lr`, `clip 1.0`, a longer
`lr_schedule warmup(n)` or `dtype compute f32, params f32, grads f32` are what helps most often; if the first
step does it, smaller weights (`init normal`).""",
    Code.BAD_IR: """\
A textual IR does not parse, breaks a rule that the verifier checks, has numbers beyond their limits or that
do not agree, or is no program that the passes can work on.

Example:
    %c = add %a, %b : f32[8]     where %b is f32[4]

Fix: the message names the place and the rule.""",
    Code.BROKEN_PASS: """\
A pass turned a valid module into an invalid one. This is a fault of wscc.

Example:
    `partition` produced invalid IR: %c reads a partial value

Fix: report it with the input; `--print-after` shows the module.""",
    Code.PASS_ORDER: """\
A list of passes does not fit the module that it is run on: a pass needs what an earlier pass provides, or
would run on a module that has been through it.

Example:
    wscc opt graph.wir --passes 'partition'      the module is not differentiated

Fix: `wscc passes` lists the passes in the order of the pipeline; name them from where the module stands on.""",
}

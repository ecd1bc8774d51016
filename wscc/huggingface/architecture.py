"""The architecture that a `config.json` describes: sizes and choices."""

from __future__ import annotations

from dataclasses import dataclass

from wscc.huggingface.rotary import Rotary


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of `count` experts in place of the feed-forward part, of which a token goes through `chosen`;
    `renormalise`: their gates sum to one; `shared`: the width of the expert that every token goes through, with a gate
    of its own, if there is one."""

    count: int
    chosen: int
    renormalise: bool
    shared: int | None = None


@dataclass(frozen=True, slots=True)
class Images:
    """Images of so many `patches`, each of `patch` x `patch` pixels of `channels` numbers, and their `classes`."""

    patches: int
    patch: int
    channels: int
    classes: int


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What the layers of a model differ in: the positions that attention looks back on, itself among them (0: all), and
    the rotary positions."""

    window: int
    rotary: Rotary


@dataclass(frozen=True, slots=True)
class Caps:
    """Where scores and logits are capped (0: nowhere)."""

    scores: float = 0.0
    logits: float = 0.0


@dataclass(frozen=True, slots=True)
class Factors:
    """What the embedding, each part of a layer, scores and logits are multiplied by."""

    embedding: float = 1.0
    residual: float = 1.0
    scores: float = 1.0
    logits: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Sizes and choices of a transformer.

    `rotary`: its rotary positions, or None where positions are learned. `rms`: norms are RMSNorm, else LayerNorm.
    `gated`: SwiGLU of two matrices, else `activation` of one. `head_size` is the width of one head. `biased` are
    the linear layers with a bias: of `qkv`, `o`, `mlp`. `fused`: queries, keys and values are one matrix. `normed`: the
    norms of queries and keys, of each `head` with one gain, of `each` head with its own (LayerNorm), or over `all`
    heads. `parallel`: the feed-forward part reads what attention reads, not what attention made; `shared`: by the same
    norm. `norms`: what ends the names of the two norms of a layer. `head_bias`: the head has a bias. `behind`: norms
    stand behind the parts of a layer, and none before the head. `table`: the width of the embedding, if it is projected
    to `d` and back. `window`: the positions that attention looks back on, itself among them, if there is a limit;
    `everywhere`: in all layers.
    `padding`: the token whose row of the embedding gets no gradient in PyTorch, if there is one. `experts`: if there
    are any, `ffn` is the width of each. `alibi`: scores have slopes by distance, and no positions are learned.
    `unit`: norms scale by 1 + gain. `sandwich`: norms stand before and behind the parts of a layer. `kinds`: those of
    the layers in turn, from the first on, if they differ. `segments`: the kinds of segments of an encoder of texts.
    `images`: those of an encoder of images.
    `seq`: the length asked for.
    """

    kind: str
    gated: bool
    layers: int
    d: int
    heads: int
    kv: int
    head_size: int
    ffn: int
    vocab: int
    positions: int
    activation: str
    eps: float
    tied: bool
    biased: frozenset[str]
    std: float
    rotary: Rotary | None = None
    rms: bool = False
    fused: bool = False
    normed: str = ""
    parallel: bool = False
    shared: bool = False
    norms: tuple[str, str] = ("1", "2")
    head_bias: bool = False
    behind: bool = False
    table: int | None = None
    factors: Factors = Factors()
    window: int | None = None
    everywhere: bool = False
    padding: int | None = None
    experts: Experts | None = None
    alibi: bool = False
    unit: bool = False
    sandwich: bool = False
    caps: Caps = Caps()
    kinds: tuple[LayerKind, ...] = ()
    segments: int = 0
    images: Images | None = None
    seq: int | None = None

    @property
    def encodes(self) -> bool:
        """Whether it is an encoder."""
        return self.segments > 0 or self.images is not None

    @property
    def learned(self) -> bool:
        """Whether there is a table of positions."""
        return self.rotary is None and not self.alibi

    @property
    def most_positions(self) -> int:
        """The longest sequence for which the program is exactly the model."""
        return self.positions if self.window is None or self.everywhere else min(self.positions, self.window)

    @property
    def weights(self) -> int:
        """The number of elements of all matrices and tables."""
        networks = self.experts.count if self.experts else 1
        per_layer = 2 * self.d * self.head_size * (self.heads + self.kv)
        widths = networks * self.ffn + (self.experts.shared or 0 if self.experts else 0)
        per_layer += self.d * widths * (3 if self.gated else 2)
        tables = self.vocab * (1 if self.tied else 2) + (self.positions if self.learned else 0)
        return self.layers * per_layer + tables * self.d

"""weir.profile: amounts for any length, from a few microbatches."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction
from typing import Any, Callable

import torch
from torch import Tensor, nn

from ._file import Amount, Kind, Piece, Profile, ProfileError, Shared, padded
from ._measure import RUNS, Real, nearest
from ._model import ACTIONS, Model, Settings, Unlike

__all__ = ["profile"]

_COPY = 64  # bytes by which one sequence may differ from several, which are copied where one is viewed
_TILES = (8, 16, 32, 64, 128, 256)


def profile(
    build: Callable[[], nn.Module], batch: Callable[[int, int], Any], loss: Callable[[Any, Any], Tensor] | None = None, *, seq: int = 4096, device: str = "cuda",
    capability: str = "9.0", attention: str = "flash", autocast: str | None = None, checkpoint: bool = False, layers: str | list[str] | None = None, beyond: int = 0,
    measure: bool = False,
) -> Profile:
    """Returns what each piece of a model keeps and computes, from the model's own code, without memory for it and without its device.

    build() makes the module on the default device. batch(sequences, length) makes the input of a microbatch there:
    a tensor, a tuple of arguments or a dict of keyword arguments. loss(output, batch) is a scalar; without it, it is
    the output's attribute loss.

    seq         the typical length of a sequence; amounts are fitted at a quarter, a half and all of it
    device      "cuda", with kernels of this compute capability and of this attention ("flash", "efficient",
                "cudnn" or "math"); or "cpu", with "flash" or "math"
    autocast    the dtype of autocast, such as "bfloat16", or None
    checkpoint  whether each layer keeps its input alone, by torch.utils.checkpoint
    layers      the names of the layers, or of the containers that have them, in order of execution; by default
                the list with most parameters
    beyond      a length that the amounts have to hold up to, such as twice a window; at least twice seq
    measure     whether to time the pieces too, with real tensors on the device, which has to be there. If the model
                does not run on fake tensors, its bytes are counted there as well

    Raises ProfileError if the model does not run on fake tensors, or if an amount is not a linear function of the
    sequences, the tokens and the squared lengths.
    """
    settings = Settings(device=device, capability=capability, attention=attention, autocast=autocast, checkpoint=checkpoint)
    if device not in ("cuda", "cpu") or attention not in ("flash", "efficient", "cudnn", "math"):
        raise ProfileError(f"device {device!r}, attention {attention!r}: give cuda or cpu, and flash, efficient, cudnn or math")
    try:
        model = Model(build, batch, loss, layers, settings)
        found = _found(model, seq, beyond)
        if measure:
            model = Real(build, batch, loss, layers, settings, model.twins if model.short else None)
    except ProfileError as e:
        if not measure:
            raise
        model = Real(build, batch, loss, layers, settings)
        found = _found(model, seq, beyond)
        found.notes.append(f"Bytes and operations are those of real tensors, since {e}.")
    if isinstance(model, Real):
        _time(found, model)
    return found


def _found(model: Model, seq: int, beyond: int) -> Profile:
    """Returns the profile of a model, and checks it at other lengths."""
    quarter, odd = max(seq // 4, 16), max(seq // 4, 16) * 3 // 2 | 1
    fitted = [quarter, 2 * quarter, 4 * quarter]
    checks = [(1, odd), (1, max(8 * quarter, beyond)), (2, odd)]
    points = [*itertools.product((1, 2, 3), fitted), *checks]
    full = {}
    for point, remedy in ((checks[1], "up to which the model must have positions: take a smaller seq"), (checks[0], "an odd length: if the model takes multiples of a number alone, pad to them in batch")):
        try:
            full[point] = model.forward_only(*point)
        except ProfileError as e:
            model.forward_only(1, quarter)  # which is refused too, if the length is not the reason
            raise ProfileError(f"{e} (at {point[1]:,} tokens, at which amounts are checked, {remedy})") from e
    model.twin()
    for short in (True, False):
        model.short = short and len(set(model.twins)) < len(model.twins)
        try:
            found = {point: model.measure(*point) for point in points}
            amounts = _Amounts(model, found, fitted, odd)
            if not model.short or all(amounts.hold(found[point], every) for point, every in full.items()):
                break
        except Unlike:
            pass
    return amounts.profile(type(model.module).__name__, model.settings, fitted, [[n] * k for k, n in checks])


def _time(found: Profile, real: Real) -> None:
    """Puts measured times into a profile, and compares its bytes of layers with the allocator's."""
    points, n = [(k, n) for k in (1, 2) for n in found.fitted], found.fitted[-1]
    measured = {point: real.times(*point, weigh=point == (1, n)) for point in points}
    off = [0.0]
    for i in real.measured():
        kind = found.kinds[found.pieces[i].kind]
        kind.seconds = {action: nearest({point: times[i, action] for point, (times, _) in measured.items() if (i, action) in times}, below=True) for action in ACTIONS}
        if i in measured[1, n][1]:
            kept, received, f, b = kind.saved.at(n), kind.input.at(n), *(max([0, *(a.at(n) for a in kind.temporary[action])]) for action in "FB")
            expected = (kept + kind.border.at(n) + f, kept, kept + b)
            off += [(had + received) / max(here, 1) - 1 for had, here in zip(measured[1, n][1][i], expected)]
    misfit = max(a.above for kind in found.kinds for a in kind.seconds.values())
    found.settings["measured"] = torch.cuda.get_device_name() if real.settings.device == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    found.notes.append(f"Times are medians of {RUNS} runs at {len(points)} microbatches; the forms differ from them by {misfit:.1%} at most.")
    found.notes.append(f"In F of a layer, after it and in B, the allocator had {min(off):+.1%} to {max(off):+.1%} of the bytes here, with {n:,} tokens.")


class _Amounts:
    """The amounts of a model, by what they are of: (piece, name), (piece, name, action), ("shared", pieces) or "batch"."""

    def __init__(self, model: Model, found: dict[tuple[int, int], dict[Any, Any]], fitted: list[int], odd: int) -> None:
        self.model, self.amounts = model, {}
        self.peaks: dict[Any, list[Amount]] = {}
        for key in dict.fromkeys(key for one in found.values() for key in one):
            if "temporary" in key:
                self.peaks[key] = _peaks({point: one.get(key, []) for point, one in found.items()}, fitted)
                continue
            amount = _exact({point: one.get(key, 0) for point, one in found.items()}, fitted)
            if amount is None and (3, odd) not in found:  # more odd lengths, to tell the tiles of a kernel
                found.update({point: model.measure(*point) for point in ((3, odd), (1, odd + 10), (2, odd + 10))})
            values = {point: one.get(key, 0) for point, one in found.items()}
            amount = amount or _exact(values, fitted, odd)
            if amount is None and isinstance(model, Real):
                amount = nearest(values, below=False)
            if amount is None:
                raise ProfileError(f"{self._named(key)} has no form in sequences, tokens and squares: {_unlike(values, fitted)}")
            self.amounts[key] = amount
        for key, amount in [*self.amounts.items(), *((key, a) for key, each in self.peaks.items() for a in each)]:
            if model.settings.device == "cpu":
                amount.source = "cpu"
            elif model.kernels & ({key[0]} if isinstance(key[0], int) else set(key[1]) if key[0] == "shared" else set()):
                amount.source = "kernel"
            if amount.several:
                amount.several.source = amount.source

    def _named(self, key: Any) -> str:
        """Returns what an amount is of."""
        of = sorted(key[1]) if key[0] == "shared" else [key[0]]
        where = ", ".join(f"{self.model.pieces[i]} ({type(self.model.layers[i - 1][1]).__name__})" if 0 < i <= len(self.model.layers) else self.model.pieces[i] for i in of if key != "batch")
        return "the batch" if key == "batch" else f"{where}: what they share" if key[0] == "shared" else f"{where}: " + " of ".join(key[1:])

    def hold(self, short: dict[Any, Any], full: dict[Any, int]) -> bool:
        """Reports whether a forward of all layers keeps, sends and computes what one in which some stand for others does."""
        twins = self.model.twins
        shared = {self._everywhere(key[1]): n for key, n in short.items() if key[0] == "shared"}
        return shared == {key[1]: n for key, n in full.items() if key[0] == "shared"} and all(
            short[(twins[key[0]], *key[1:])] == n for key, n in full.items() if isinstance(key[0], int))

    def _everywhere(self, pieces: frozenset[int]) -> frozenset[int]:
        """Returns the pieces with those for which they ran."""
        return frozenset(i for i, twin in enumerate(self.model.twins) if (twin if self.model.short else i) in pieces)

    def profile(self, name: str, settings: Settings, fitted: list[int], checked: list[list[int]]) -> Profile:
        model = self.model
        kinds: list[Kind] = []
        of: dict[str, int] = {}
        parameters, tied = model.parameters()
        pieces = []
        for i, piece in enumerate(model.pieces):
            at = model.twins[i] if model.short else i
            a, peaks = self.amounts, {action: self.peaks[at, "temporary", action] for action in ACTIONS}
            flops = {action: a[at, "flops", action] for action in ACTIONS}
            kind = Kind(parameters[i], a[at, "saved"], a[at, "input"], a[at, "cached"], a[at, "freed"], a[at, "carry"], a[at, "border"], peaks, flops)
            if repr(kind) not in of:
                of[repr(kind)] = len(kinds)
                kinds.append(kind)
            pieces.append(Piece(piece, of[repr(kind)]))
        shared = [Shared(sorted(self._everywhere(key[1])), a) for key, a in self.amounts.items() if key[0] == "shared"]
        notes = ["Workspaces inside kernels are no tensors and are not counted."]
        notes += ["Operators are those of the CPU."] if settings.device == "cpu" else ["The numbers were not compared with a GPU."]
        plain = {key: "yes" if value is True else value for key, value in vars(settings).items() if value}
        return Profile(name, plain, fitted, checked, pieces, kinds, sorted(shared, key=lambda s: s.pieces), tied, self.amounts["batch"], notes)


def _exact(values: dict[tuple[int, int], int], fitted: list[int], odd: int = 0) -> Amount | None:
    """Returns the amount that has all values, by the number of sequences and their length, or None.

    One sequence may be viewed where several are copied, so its amount may be another one; a difference of a few
    bytes is made a constant. With odd, a length that is no multiple of a tile, some of it may grow in tiles.
    """
    for tile, squared in itertools.product(_TILES, (False, True)) if odd else [(1, False)]:
        one, several = (_form(values, fitted, k, odd, tile, squared) for k in (1, 2))
        for a in (several, dataclasses.replace(one, several=several)):
            off = {(k, n): a.at(*[n] * k) - value for (k, n), value in values.items()}
            least = min(0, *off.values())
            if all(abs(d) <= (0 if odd else _COPY) for d in off.values()) and all(x > -1e-6 for f in (a, several) for x in (f.token, f.square, f.longest, f.longest_square, f.tiled, f.tiled_square)):
                a.constant -= least
                if a.several:
                    a.several.constant -= least
                a.above = round(max((d - least) / max(values[p], 1) for p, d in off.items()), 9)
                return a
    return None


def _unlike(values: dict[tuple[int, int], int], fitted: list[int]) -> str:
    """Says which values are not those of the form through the fitted lengths."""
    forms = [_form(values, fitted, k) for k in (1, 2)]
    off = {(k, n): a.at(*[n] * k) for (k, n) in values for a in [forms[k > 1]] if abs(a.at(*[n] * k) - values[k, n]) > _COPY}
    return "; ".join([*(f"{k} x {n} tokens have {values[k, n]:,}, where the others give {expected:,}" for (k, n), expected in off.items()),
                      "all are " + ", ".join(f"{v:,} for {k} x {n}" for (k, n), v in values.items())])


def _form(values: dict[tuple[int, int], int], fitted: list[int], sequences: int, odd: int = 0, tile: int = 1, squared: bool = False) -> Amount:
    """Returns the amount for one sequence, or for several: of these, two and three tell what they share.

    With a tile, what is above the parabola at the odd length is in proportion to what padded lengths are above theirs.
    """

    def coefficients(k: int) -> list[Fraction]:
        own = _parabola([(n, values[k, n]) for n in fitted])
        if tile == 1:
            return [*own, Fraction(0)]
        up = {n: padded(n, tile) * (n if squared else 1) for n in (*fitted, odd)}
        of = _parabola([(n, up[n]) for n in fitted])
        excess = up[odd] - sum(c * odd**i for i, c in enumerate(of))
        share = (values[k, odd] - sum(c * odd**i for i, c in enumerate(own))) / excess if excess else Fraction(0)
        return [*(c - share * p for c, p in zip(own, of)), share]

    each, once = coefficients(sequences), [Fraction(0)] * 4
    if sequences > 1:
        third = coefficients(3)
        each, once = [b - a for a, b in zip(each, third)], [3 * a - 2 * b for a, b in zip(each, third)]
    else:
        each[0], once[0] = once[0], each[0]
    sequence, token, square, tiled = map(float, each)
    constant, longest, longest_square, _ = map(float, once)
    return Amount(constant, sequence, token, square, longest, longest_square, tile, *((0, tiled) if squared else (tiled, 0)))


def _parabola(points: list[tuple[int, int]]) -> tuple[Fraction, Fraction, Fraction]:
    """Returns constant, slope and curvature of the parabola through three points."""
    (x, p), (y, q), (z, r) = points
    slope = Fraction(q - p, y - x)
    curve = (Fraction(r - q, z - y) - slope) / (z - x)
    return p - slope * x + curve * x * y, slope - curve * (x + y), curve


def _peaks(levels: dict[tuple[int, int], list[int]], fitted: list[int]) -> list[Amount]:
    """Returns amounts whose largest is the peak: those of the changes after which most is alive, at one point or another."""
    groups: list[list[Amount]] = []
    for one in (True, False):
        group = {point: each for point, each in levels.items() if (point[0] == 1) == one}
        most = {point: max([0, *each]) for point, each in group.items()}
        forms = [_above(most)]
        if len({len(each) for each in group.values()}) == 1:
            at = sorted({each.index(most[point]) for point, each in group.items() if most[point] > 0})
            forms = [_form({point: each[i] for point, each in group.items()}, fitted, 1 if one else 2) for i in at]
            off = {(k, n): max([0, *(a.at(*[n] * k) for a in forms)]) - value for (k, n), value in most.items()}
            if any(abs(d) > _COPY for d in off.values()):
                forms = [_above(most)]
        groups.append(forms)
    alone, several = groups
    for n in range(len(alone), len(several)):
        alone.append(dataclasses.replace(alone[0]) if alone else Amount())
    return [a if a == b else dataclasses.replace(a, several=b) for a, b in zip(alone, several + [several[0] if several else Amount()] * len(alone))]


def _above(values: dict[tuple[int, int], int]) -> Amount:
    """Returns a small amount that is nowhere below the values, for peaks, which are the largest of several amounts."""
    best, least = Amount(), float("inf")
    for share in (0, 0.25, 0.5, 0.75, 0.9, 1):  # of the last value that squares have
        (k, n), value = max(values.items(), key=lambda one: one[0][1])
        a = Amount(square=share * value / (k * n * n))
        a.token = max(0.0, max((v - a.at(*[n] * k)) / (k * n) for (k, n), v in values.items()))
        excess = max((a.at(*[n] * k) - v) / max(v, 1) for (k, n), v in values.items())
        if excess < least:
            best, least = a, excess
    best.above = round(least, 4)
    best.token *= 1 + 1e-12
    return best

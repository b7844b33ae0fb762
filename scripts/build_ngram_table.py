"""Builds rules/data/ngrams.npz: character 3-gram surprisal, and per script what natural text stays under.

usage: python scripts/build_ngram_table.py TEXT.jsonl[.zst]     (records with "text" and "lang")
Nine records in ten are counted, the tenth sets the ceilings. Languages are capped, so that English and Chinese
do not crowd out the others; records that are damaged themselves (mojibake, controls) are left out.
"""

from __future__ import annotations

import io
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import zstandard
from cleanse.rules import classes as c
from cleanse.rules import profile_columns as col
from cleanse.rules import surprisal_kernel as kernel
from cleanse.rules.misread import badness, mend_misread
from cleanse.rules.profile import profile_of
from numpy.typing import NDArray

from cleanse.measures import TextBatch

OUT = Path(__file__).resolve().parents[1] / "rules" / "data" / "ngrams.npz"
BITS = 19  # 2^19 slots of two bytes: 1 MB
LOAD = 0.66
CAP_CHARS = 1_500_000  # per language
LARGER_CAPS = {"en": 5_000_000, "code": 6_000_000, "zh": 6_000_000, "ko": 4_000_000, "ja": 4_000_000}
MIN_SCRIPT_CHARS = 15_000  # a script with less is not modelled
UPPERCASED = 15  # every so many records once more in capitals: headings, SQL, shouting
DISCOUNT = 0.5
ALPHABET = 400  # a script with fewer letters is an alphabet or an abugida, in which no letter is all that rare:
RARE_LETTER = 6  # nats at most for one, before backoff, so that a language with letters of its own is not noise
CEILING_QUANTILE = 0.9995
CEILING_MARGIN = 1.12  # over that quantile; a script's ceiling is at least LOWEST_CEILING nats per character
LOWEST_CEILING = 4.0
FEW_BLOCKS = 400  # with fewer held-out blocks the top has no tail to speak of: a wider margin over the highest
FEW_MARGIN = 1.5
FEW_LOWEST = 6.5  # nats: other languages of such a script may look unlike the few known ones
ASCII = 128
SCREENED = 0.985  # share of natural blocks that the quick screen clears
MOST_LEFT = 0.03  # bad sequences per character that a mended text may keep
SMALL_CHARS = 100_000  # a language with less text is counted several times over, SMALL_TIMES at most
SMALL_TIMES = 6
MIN_LANGUAGE_BLOCKS = 8  # blocks from which a language has a say in its script's ceiling
LANGUAGE_QUANTILE = 0.98
UNSEEN_CEILING = 9  # nats per character for scripts that the held-out tenth does not show


def records(path: Path) -> Iterator[tuple[str, str]]:
    """Text and language of each record."""
    with path.open("rb") as raw:
        lines = io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw)) if path.suffix == ".zst" else raw
        for line in lines:
            record = orjson.loads(line)
            yield record["text"], record["lang"]


def undamaged(texts: list[str]) -> list[str]:
    """The texts with misread UTF-8 mended, without those that cannot be."""
    rows = profile_of(TextBatch.from_texts(list(texts)))
    suspected = (rows[c.CONTROL] > 0) | (rows[col.UTF8_IN_TEXT] > 0)
    mended = [mend_misread(t, guess_spaces=False) if s else t for t, s in zip(texts, suspected.tolist(), strict=True)]
    return [t for t, s in zip(mended, suspected.tolist(), strict=True) if not (s and badness(t) > MOST_LEFT * len(t))]


def split(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Texts to count, and by language the texts that set the ceilings."""
    held: defaultdict[str, list[str]] = defaultdict(list)
    counted: defaultdict[str, list[str]] = defaultdict(list)
    used: defaultdict[str, int] = defaultdict(int)
    for number, (text, lang) in enumerate(records(path)):
        if number % 10 == 0:
            held[lang].append(text)
        elif used[lang] < LARGER_CAPS.get(lang, CAP_CHARS):
            used[lang] += len(text)
            counted[lang].append(text)
            if number % UPPERCASED == 1:
                counted[lang].append(text.upper())
    every: list[str] = []
    for lang, texts in counted.items():
        every += undamaged(texts) * int(np.clip(SMALL_CHARS // used[lang], 1, SMALL_TIMES))
    return every, {lang: undamaged(texts) for lang, texts in held.items()}


def folded(texts: list[str], characters: NDArray[np.uint16]) -> NDArray[np.int64]:
    """All texts as one array of folded code points, two line ends between texts; invisible ones left out."""
    points = np.frombuffer("\n\n".join(texts).encode("utf-32-le"), np.uint32).astype(np.int64)
    kinds = characters[points] & c.CLASS_MASK
    points = np.where(kinds == c.DIGIT, 0x30, points)
    points = np.where(kinds == c.SPACE, 0x20, points)
    points = np.where(kinds == c.NEWLINE, 0x0A, points)
    return points[kinds < c.CONTROL]


def scores_of(counts: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """-ln of the discounted share of each count in its group, in eighths of a nat."""
    _, inverse = np.unique(group, return_inverse=True)
    totals = np.bincount(inverse, weights=counts)
    nats = -np.log((counts - DISCOUNT) / totals[inverse])
    return np.clip(np.rint(nats * kernel.EIGHTHS), 0, (1 << kernel.VALUE_BITS) - 1).astype(np.int64)


def model(
    points: NDArray[np.int64], scripts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Keys (entries, 3) and scores of the n-grams worth keeping, and floors by script."""
    x, y, z = points[:-2], points[1:-1], points[2:]
    script = scripts[z]
    one, one_n = np.unique(z, return_counts=True)
    one_score = scores_of(one_n, scripts[one])
    sizes = np.bincount(scripts[one], weights=one_n, minlength=256)
    floors = np.where(sizes >= MIN_SCRIPT_CHARS, np.rint(8 * np.log(np.maximum(sizes, 2))), 0).astype(np.int64)
    floors = np.minimum(floors, (1 << kernel.VALUE_BITS) - 1)
    alphabet = np.bincount(scripts[one], minlength=256) < ALPHABET
    alphabet[c.LATIN] = True
    floors = np.where(alphabet, np.minimum(floors, RARE_LETTER * kernel.EIGHTHS), floors)
    one_score = np.where(alphabet[scripts[one]], np.minimum(one_score, RARE_LETTER * kernel.EIGHTHS), one_score)

    two, two_n = np.unique((y << 21) | z, return_counts=True)
    y2, z2 = two >> 21, two & 0x1FFFFF
    two_score = scores_of(two_n, (y2 << 8) | scripts[z2])
    two_backoff = one_score[np.searchsorted(one, z2)] + kernel.BACKOFF

    three, three_n = np.unique((x << 42) | (y << 21) | z, return_counts=True)
    x3, y3, z3 = three >> 42, (three >> 21) & 0x1FFFFF, three & 0x1FFFFF
    three_score = scores_of(three_n, (x3 << 29) | (y3 << 8) | scripts[z3])
    three_backoff = two_score[np.searchsorted(two, (y3 << 21) | z3)] + kernel.BACKOFF
    del script

    # Weighted difference pruning (Seymore and Rosenfeld 1996): what an entry saves, times how often.
    keys = np.concatenate(
        [
            np.stack([np.full(len(one), kernel.NOTHING), np.full(len(one), kernel.NOTHING), one], 1),
            np.stack([np.full(len(two), kernel.NOTHING), y2, z2], 1),
            np.stack([x3, y3, z3], 1),
        ]
    )
    score = np.concatenate([one_score, two_score, three_score])
    gain = np.concatenate(
        [
            np.full(len(one), np.inf),
            np.where(two_n > 1, two_n * np.abs(two_backoff - two_score).astype(np.float64), 0),
            np.where(three_n > 1, three_n * np.abs(three_backoff - three_score).astype(np.float64), 0),
        ]
    )
    modelled = floors[scripts[keys[:, 2]]] > 0
    gain[~modelled] = 0
    keep = np.argsort(-gain, kind="stable")[: int(LOAD * (1 << BITS))]
    keep = keep[gain[keep] > 0]
    return keys[keep], score[keep], floors


def pack(keys: NDArray[np.int64], score: NDArray[np.int64]) -> NDArray[np.uint16]:
    """The hash table: entries in order of worth; the few that find no free slot are left out."""
    table = np.zeros((1 << BITS) + kernel.PROBES, np.uint16)
    lost = 0
    for (a, b, z), value in zip(keys.tolist(), score.tolist(), strict=True):
        h = int(kernel.key_hash(a, b, z))
        slot, fingerprint = h >> (64 - BITS), (h >> 20) & 0x1FF
        entry = max(1, (fingerprint << kernel.VALUE_BITS) | value)
        for probe in range(kernel.PROBES):
            if table[slot + probe] == 0 or table[slot + probe] >> kernel.VALUE_BITS == fingerprint:
                if table[slot + probe] == 0:
                    table[slot + probe] = entry
                break
        else:
            lost += 1
    print(f"{len(keys):,} entries, {lost:,} without a slot")
    return table


def ceilings_of(
    held: dict[str, list[str]],
    table: NDArray[np.uint16],
    floors: NDArray[np.int64],
    characters: NDArray[np.uint16],
) -> NDArray[np.int64]:
    """Highest block sum of natural text by script: of the script as a whole, and of each language in it."""
    scripts = characters >> c.SCRIPT_SHIFT
    lowest = LOWEST_CEILING * kernel.EIGHTHS * kernel.BLOCK
    nats = kernel.EIGHTHS * kernel.BLOCK
    by_script: defaultdict[int, list[NDArray[np.int64]]] = defaultdict(list)
    tops: defaultdict[int, float] = defaultdict(float)
    for lang, texts in held.items():
        whole = "\n".join(texts)
        batch = TextBatch.from_texts([whole[i : i + 80] for i in range(0, len(whole), 80)])
        out = np.zeros((len(batch), kernel.N_COLUMNS), np.int64)
        every = np.ones(len(batch), np.bool_)
        kernel.surprisal(batch.data, batch.offsets, every, characters, table, floors, np.full(256, 1000, np.int64), out)
        sums = out[:, kernel.PEAK]  # of the one block in each piece, against a ceiling of 1000
        script = profile_of(batch)[col.SCRIPT]
        for number in np.unique(script[sums > 0]).tolist():
            here = sums[(script == number) & (sums > 0)]
            by_script[number].append(here)
            if len(here) >= MIN_LANGUAGE_BLOCKS:
                top = float(np.quantile(here, LANGUAGE_QUANTILE))
                if top > tops[number]:
                    tops[number] = top
                    print(f"    {c.script_codes()[number]} {lang}: {top / nats:.2f}")
    ceilings = np.full(256, UNSEEN_CEILING * nats, np.int64)
    for number, parts in by_script.items():
        here = np.concatenate(parts)
        few = len(here) < FEW_BLOCKS
        top = max(tops[number], float(np.quantile(here, 1 if few else CEILING_QUANTILE)))
        letters = int((scripts == number).sum())
        least = lowest if not few else nats * (FEW_LOWEST if letters < ALPHABET // 2 else UNSEEN_CEILING)
        ceilings[number] = int(max(least, (FEW_MARGIN if few else CEILING_MARGIN) * top))
        print(
            f"  {c.script_codes()[number]}: {len(here):7,} blocks, mean {here.mean() / nats:.2f}, "
            f"99 % {np.quantile(here, 0.99) / nats:.2f}, top {here.max() / nats:.2f}, "
            f"ceiling {ceilings[number] / nats:.2f} nats per character"
        )
    return ceilings


def pair_scores(points: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Scores of ASCII pairs, in eighths of a nat: shape (128 * 128,). What is not ASCII counts as a space before."""
    before, after = points[:-1], points[1:]
    ascii_after = after < ASCII
    before = np.where(before < ASCII, before, 0x20)[ascii_after]
    counts = np.bincount(before * ASCII + after[ascii_after], minlength=ASCII * ASCII).reshape(ASCII, ASCII)
    nats = -np.log((counts + DISCOUNT) / (counts.sum(axis=1, keepdims=True) + ASCII * DISCOUNT))
    scores = np.clip(np.rint(nats * kernel.EIGHTHS), 0, 127).astype(np.uint8)
    fold = np.arange(ASCII)
    fold[0x30:0x3A], fold[0x09], fold[0x0B:0x0E] = 0x30, 0x20, 0x0A
    return np.ascontiguousarray(scores[np.ix_(fold, fold)]).reshape(-1)


def screen_of(texts: list[str], pairs: NDArray[np.uint8]) -> float:
    """The mean pair score that most natural blocks of ASCII stay under."""
    data = np.frombuffer("\n".join(texts).encode("ascii", "replace"), np.uint8).astype(np.int64)
    scores = pairs[(data[:-1] << 7) | data[1:]].astype(np.int64)
    means = scores[: len(scores) // kernel.BLOCK * kernel.BLOCK].reshape(-1, kernel.BLOCK).mean(axis=1)
    screen = float(np.quantile(means, SCREENED))
    print(f"quick screen: {screen / kernel.EIGHTHS:.2f} nats per pair; mean of natural text {means.mean() / 8:.2f}")
    return screen


def main() -> None:
    """Counts, prunes, packs and writes."""
    if len(sys.argv) != 2:  # noqa: PLR2004
        raise SystemExit(__doc__)
    characters = c.character_table()
    scripts = (characters >> c.SCRIPT_SHIFT).astype(np.int64)
    counted, held = split(Path(sys.argv[1]))
    points = folded(counted, characters)
    print(f"{len(counted):,} texts, {len(points):,} characters")
    keys, score, floors = model(points, scripts)
    table = pack(keys, score)
    ceilings = ceilings_of(held, table, floors, characters)
    pairs = pair_scores(points)
    screen = screen_of([text for texts in held.values() for text in texts if text.isascii()], pairs)
    np.savez_compressed(OUT, table=table, floors=floors, ceilings=ceilings, pairs=pairs, screen=screen)
    print(f"{OUT}: {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

"""How often a caller may call: a token bucket, as a value.

Source: Turner, New Directions in Communications, IEEE Communications Magazine 24(10), 1986.
"""

import msgspec


class Bucket(msgspec.Struct, frozen=True):
    """Tokens left at an instant, in seconds of any clock that does not go back."""

    tokens: float
    at: float


def take(bucket: Bucket | None, now: float, rate: float, burst: float) -> tuple[Bucket, float]:
    """The bucket after one token was asked for, and the seconds until there is one: 0 = it was taken.

    rate: tokens a second. burst: tokens in a full bucket. None = a bucket that was never asked.
    """
    filled = burst if bucket is None else min(burst, bucket.tokens + (now - bucket.at) * rate)
    if filled >= 1.0:
        return Bucket(filled - 1.0, now), 0.0
    return Bucket(filled, now), (1.0 - filled) / rate

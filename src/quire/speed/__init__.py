"""Tokens per second of a model on padded and on packed batches of the same documents."""

from quire.speed.documents import packed_documents, random_documents
from quire.speed.model_speed import Measured, SpeedOptions, measure_speed

__all__ = ["Measured", "SpeedOptions", "measure_speed", "packed_documents", "random_documents"]

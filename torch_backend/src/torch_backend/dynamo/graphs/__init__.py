"""Graphs for torch.compile: `mode="reduce-overhead"` of inductor and `backend="cudagraphs"`. A compiled region is
recorded at its second call and replayed from then on.
"""

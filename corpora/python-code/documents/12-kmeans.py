import random
from math import dist, inf


def choose_seeds(points, k, rng):
    """k-means++: each new centre is drawn in proportion to squared distance."""
    seeds = [rng.choice(points)]
    while len(seeds) < k:
        weights = [min(dist(p, s) ** 2 for s in seeds) for p in points]
        seeds.append(rng.choices(points, weights)[0])
    return seeds


def kmeans(points, k, *, rounds=50, seed=None):
    rng = random.Random(seed)
    centres = choose_seeds(points, k, rng)
    previous = inf
    for _ in range(rounds):
        clusters = [[] for _ in range(k)]
        inertia = 0.0
        for p in points:
            d, index = min((dist(p, c), i) for i, c in enumerate(centres))
            clusters[index].append(p)
            inertia += d * d
        if previous - inertia < 1e-9:
            break
        previous = inertia
        centres = [
            tuple(sum(axis) / len(cluster) for axis in zip(*cluster)) if cluster else rng.choice(points)
            for cluster in clusters
        ]
    return centres, clusters, inertia

import heapq
from collections import defaultdict
from typing import Dict, Hashable, Iterable, List, Tuple

Edge = Tuple[Hashable, Hashable, float]


class Graph:
    """A directed graph with non-negative weights."""

    def __init__(self, edges: Iterable[Edge] = ()):
        self._out: Dict[Hashable, List[Tuple[Hashable, float]]] = defaultdict(list)
        for source, target, weight in edges:
            self.add(source, target, weight)

    def add(self, source, target, weight):
        if weight < 0:
            raise ValueError("negative weights need Bellman-Ford, not Dijkstra")
        self._out[source].append((target, weight))

    def distances(self, start):
        best = {start: 0.0}
        previous = {}
        queue = [(0.0, start)]
        while queue:
            cost, node = heapq.heappop(queue)
            if cost > best[node]:
                continue  # a cheaper entry was already handled
            for neighbour, weight in self._out.get(node, ()):
                candidate = cost + weight
                if candidate < best.get(neighbour, float("inf")):
                    best[neighbour] = candidate
                    previous[neighbour] = node
                    heapq.heappush(queue, (candidate, neighbour))
        return best, previous

    def path(self, start, goal):
        best, previous = self.distances(start)
        if goal not in best:
            return None
        nodes = [goal]
        while nodes[-1] != start:
            nodes.append(previous[nodes[-1]])
        return best[goal], nodes[::-1]

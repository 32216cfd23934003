"""What a gateway process holds, sampled during a run, and whether it stayed flat."""

from statistics import fmean

import anyio
import psutil

SAMPLE_SECONDS = 0.5
MB = 1024 * 1024
SLACK_MB, SLACK_SHARE = 16.0, 0.05
"""What the last third may hold beyond the middle one: allocators keep freed pages, answers of 1 MB come and go."""


class Watch:
    """Samples of resident memory (bytes), descriptors and threads."""

    def __init__(self, pid):
        self._process = psutil.Process(pid)
        self._samples = []

    async def run(self):
        while True:
            self.sample()
            await anyio.sleep(SAMPLE_SECONDS)

    def sample(self):
        with self._process.oneshot():
            self._samples.append(
                (self._process.memory_info().rss, self._process.num_fds(), self._process.num_threads())
            )

    def thirds(self):
        """Mean megabytes, descriptors and threads of each third of the run."""
        size = max(1, len(self._samples) // 3)
        parts = (self._samples[:size], self._samples[size : 2 * size], self._samples[2 * size :])
        return [
            {
                "rss_mb": round(fmean(rss) / MB, 1),
                "fds": round(fmean(fds), 1),
                "threads": round(fmean(threads), 1),
            }
            for rss, fds, threads in (zip(*part, strict=True) for part in parts if part)
        ]

    def growth_mb(self):
        """Mean of the last third less that of the middle one."""
        _, middle, last = self.thirds()
        return round(last["rss_mb"] - middle["rss_mb"], 1)

    def is_flat(self):
        """Whether memory of the last third is that of the middle one, within the slack."""
        _, middle, _ = self.thirds()
        return self.growth_mb() <= SLACK_MB + SLACK_SHARE * middle["rss_mb"]

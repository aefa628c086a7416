"""The pure heart: no I/O, no clock, no asyncio."""

"""The locks of the two clients."""

import asyncio
import threading

AsyncLock = asyncio.Lock
Lock = threading.Lock

"""The transport of the requests: httpx when it is installed, the standard library otherwise.

A transport sends one request and gives the answer's head at once, its body as
it is read. It follows no redirects, repeats nothing, and raises
:class:`modbox.ConnectionError` and :class:`modbox.TimeoutError` only.
"""

from __future__ import annotations

import builtins
import http.client
import socket
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Optional, Protocol, Union

from .errors import ModboxError, new_error

if TYPE_CHECKING:
    import httpx

CHUNK_BYTES = 64 << 10

#: A body to send: whole, or in parts.
Content = Union[str, bytes, Iterable[bytes]]
AsyncContent = Union[Content, AsyncIterable[bytes]]


@dataclass(frozen=True)
class Request:
    """One request. ``timeout`` is the seconds of silence after which it is given up; None is never."""

    method: str
    url: str
    headers: Mapping[str, str]
    content: Union[bytes, Iterable[bytes], AsyncIterable[bytes], None]
    timeout: Optional[float]

    def failed(self, err: BaseException) -> ModboxError:
        """The error of ours for what a library raised."""
        what = f"{self.method} {self.url.split('?')[0]}"
        if isinstance(err, builtins.TimeoutError) or isinstance(err, socket.timeout):
            return new_error("timeout", f"{what}: no answer within {self.timeout} s")
        return new_error("connection", f"{what}: {err or type(err).__name__}")


class Response(Protocol):
    """An answer. Header names are in lower case. Close it when it is not read to its end."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class Transport(Protocol):
    """Carries the requests of a Modbox; safe for concurrent use."""

    def send(self, request: Request) -> Response: ...

    def close(self) -> None: ...


class AsyncResponse(Protocol):
    """As Response, for AsyncModbox."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> AsyncIterator[bytes]: ...

    async def close(self) -> None: ...


class AsyncTransport(Protocol):
    """Carries the requests of an AsyncModbox."""

    async def send(self, request: Request) -> AsyncResponse: ...

    async def close(self) -> None: ...


def default_transport(ssl_context: Optional[ssl.SSLContext] = None) -> Transport:
    """httpx when it is installed, else the standard library."""
    try:
        return HttpxTransport(ssl_context=ssl_context)
    except ImportError:
        return UrllibTransport(ssl_context)


def default_async_transport(ssl_context: Optional[ssl.SSLContext] = None) -> AsyncTransport:
    """httpx; raises ImportError when it is not installed."""
    try:
        return AsyncHttpxTransport(ssl_context=ssl_context)
    except ImportError as err:
        raise ImportError(f"the asyncio client needs httpx: pip install 'modbox[httpx]' ({err})") from err


class _EveryAnswer(urllib.request.HTTPErrorProcessor):
    """Hands out every answer, whatever its status; redirects are not followed."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response


class UrllibTransport:
    """Carries requests with the standard library, one connection for each."""

    def __init__(self, ssl_context: Optional[ssl.SSLContext] = None) -> None:
        self._opener = urllib.request.build_opener(_EveryAnswer, urllib.request.HTTPSHandler(context=ssl_context))

    def send(self, request: Request) -> Response:
        content = request.content
        if isinstance(content, AsyncIterable):
            raise TypeError("an async iterable needs AsyncModbox")
        message = urllib.request.Request(request.url, data=content, headers=dict(request.headers), method=request.method)
        try:
            answer = self._opener.open(message, timeout=request.timeout)
        except urllib.error.URLError as err:
            cause = err.reason if isinstance(err.reason, BaseException) else err
            raise request.failed(cause) from err
        except (OSError, http.client.HTTPException) as err:
            raise request.failed(err) from err
        return _UrllibResponse(request, answer)

    def close(self) -> None:
        pass


class _UrllibResponse:
    def __init__(self, request: Request, answer: http.client.HTTPResponse) -> None:
        self._request = request
        self._answer = answer
        self.status: int = answer.status
        self.headers: Mapping[str, str] = {k.lower(): v for k, v in answer.headers.items()}

    def chunks(self) -> Iterator[bytes]:
        expected = int(self.headers.get("content-length", -1))
        got = 0
        try:
            # read1 gives the bytes that have arrived; read would wait for a full chunk.
            while chunk := self._answer.read1(CHUNK_BYTES):
                got += len(chunk)
                yield chunk
        except (OSError, http.client.HTTPException) as err:
            raise self._request.failed(err) from err
        # http.client takes a connection that ends early for the end of the body.
        if expected > got:
            raise self._request.failed(OSError(f"the connection broke after {got} of {expected} bytes"))

    def close(self) -> None:
        self._answer.close()


def _httpx_limits() -> Any:
    import httpx

    return httpx.Limits(max_connections=None, max_keepalive_connections=20)


def _httpx_timeout(request: Request) -> Any:
    import httpx

    # Connecting is never worth waiting for as long as an answer.
    return httpx.Timeout(request.timeout, connect=min(request.timeout or 30.0, 30.0), pool=None)


def _httpx_failed(request: Request, err: Exception) -> ModboxError:
    import httpx

    return request.failed(builtins.TimeoutError() if isinstance(err, httpx.TimeoutException) else err)


class HttpxTransport:
    """Carries requests with httpx; raises ImportError when it is not installed."""

    def __init__(self, client: Optional["httpx.Client"] = None, ssl_context: Optional[ssl.SSLContext] = None) -> None:
        import httpx

        self._client = client or httpx.Client(limits=_httpx_limits(), verify=ssl_context or True)
        self._errors = httpx.HTTPError

    def send(self, request: Request) -> Response:
        message = self._client.build_request(
            request.method,
            request.url,
            headers=dict(request.headers),
            content=request.content,
            timeout=_httpx_timeout(request),
        )
        try:
            answer = self._client.send(message, stream=True, follow_redirects=False)
        except self._errors as err:
            raise _httpx_failed(request, err) from err
        return _HttpxResponse(request, answer)

    def close(self) -> None:
        self._client.close()


class _HttpxResponse:
    def __init__(self, request: Request, answer: "httpx.Response") -> None:
        self._request = request
        self._answer = answer
        self.status = answer.status_code
        self.headers: Mapping[str, str] = {k.lower(): v for k, v in answer.headers.items()}

    def chunks(self) -> Iterator[bytes]:
        import httpx

        try:
            yield from self._answer.iter_bytes()
        except httpx.HTTPError as err:
            raise _httpx_failed(self._request, err) from err

    def close(self) -> None:
        self._answer.close()


class AsyncHttpxTransport:
    """Carries requests with httpx; raises ImportError when it is not installed."""

    def __init__(self, client: Optional["httpx.AsyncClient"] = None, ssl_context: Optional[ssl.SSLContext] = None) -> None:
        import httpx

        self._client = client or httpx.AsyncClient(limits=_httpx_limits(), verify=ssl_context or True)
        self._errors = (httpx.HTTPError, ssl.SSLError)  # older versions let the latter through

    async def send(self, request: Request) -> AsyncResponse:
        content = request.content
        if content is not None and not isinstance(content, (bytes, AsyncIterable)):
            content = _in_async(content)
        message = self._client.build_request(
            request.method,
            request.url,
            headers=dict(request.headers),
            content=content,
            timeout=_httpx_timeout(request),
        )
        try:
            answer = await self._client.send(message, stream=True, follow_redirects=False)
        except self._errors as err:
            raise _httpx_failed(request, err) from err
        return _AsyncHttpxResponse(request, answer)

    async def close(self) -> None:
        await self._client.aclose()


class _AsyncHttpxResponse:
    def __init__(self, request: Request, answer: "httpx.Response") -> None:
        self._request = request
        self._answer = answer
        self.status = answer.status_code
        self.headers: Mapping[str, str] = {k.lower(): v for k, v in answer.headers.items()}

    async def chunks(self) -> AsyncIterator[bytes]:
        import httpx

        try:
            async for chunk in self._answer.aiter_bytes():
                yield chunk
        except httpx.HTTPError as err:
            raise _httpx_failed(self._request, err) from err

    async def close(self) -> None:
        await self._answer.aclose()


async def _in_async(content: Iterable[bytes]) -> AsyncIterator[bytes]:
    for chunk in content:
        yield chunk

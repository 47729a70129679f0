// Gives older versions of Node the WebSocket that browsers and Node 22 have.
if (!globalThis.WebSocket) globalThis.WebSocket = (await import("ws")).WebSocket;

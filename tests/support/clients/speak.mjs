// Speaks to a memory server with one of the two TypeScript SDKs, and prints what it saw as JSON.
// node speak.mjs <sdk|client> <http|sse|stdio> <mode> <target as JSON: url, token | command, args, env>

const [, , which, wire, mode, target] = process.argv;
const { url, token, command, args, env } = JSON.parse(target);

const parts =
  which === "sdk"
    ? {
        ...(await import("@modelcontextprotocol/sdk/client/index.js")),
        ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
        ...(await import("@modelcontextprotocol/sdk/client/sse.js")),
        ...(await import("@modelcontextprotocol/sdk/client/stdio.js")),
      }
    : { ...(await import("@modelcontextprotocol/client")), ...(await import("@modelcontextprotocol/client/stdio")) };

const requestInit = { headers: { Authorization: `Bearer ${token}` } };
const transport =
  wire === "http"
    ? new parts.StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit })
    : wire === "sse"
      ? new parts.SSEClientTransport(new URL(`${url}/sse`), {
          requestInit,
          eventSourceInit: {
            fetch: (address, init) =>
              fetch(address, { ...init, headers: { ...init.headers, ...requestInit.headers } }),
          },
        })
      : new parts.StdioClientTransport({ command, args, env, stderr: "ignore" });

const options = which === "client" ? { versionNegotiation: { mode } } : {};
const client = new parts.Client({ name: "speak", version: "1" }, options);
const told = [];
client.fallbackNotificationHandler = async (notification) => {
  told.push(notification.method);
};
await client.connect(transport);

const call = async (name, given) => {
  const result = await client.callTool({ name, arguments: given });
  return JSON.parse(result.content[0].text);
};
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const stored = await call("store", { agent_id: "me", content: `Told by ${which} over ${wire} as ${mode}.` });
const found = await call("recall", { agent_id: "me", query: `${which} ${wire} ${mode}`, limit: 1 });
const failed = await call("recall", { agent_id: "me", query: "x", limit: 101 });
const uri = `memory://me/mem:${stored.id}`;
const listed = (await client.listResources()).resources.map((resource) => resource.uri);
const templates = (await client.listResourceTemplates()).resourceTemplates.length;
const text = (await client.readResource({ uri })).contents[0].text;
const capability = client.getServerCapabilities()?.resources ?? {};
const version = client.getNegotiatedProtocolVersion?.() ?? "";
if (capability.subscribe && mode === "legacy") {
  await client.subscribeResource({ uri });
  await call("update_memory", { memory_id: stored.id, content: `Changed by ${which} over ${wire} as ${mode}.` });
  for (let waits = 0; waits < 100 && !told.includes("notifications/resources/updated"); waits++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
console.log(
  JSON.stringify({
    tools,
    stored: stored.result,
    best: found.messages.at(-1).content,
    code: failed.code,
    listed: listed.includes(uri),
    templates,
    text,
    told,
    version,
  }),
);
await client.close();
process.exit(0);

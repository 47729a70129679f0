// The calls of a backend.
const call = async (method, path, body) => {
  const answer = await fetch(`${process.env.PUSH_SERVER}${path}`, {
    method,
    headers: { Authorization: process.env.PUSH_SECRET, "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${method} ${path}: ${await answer.text()}`);
  return (await answer.json()).result;
};

export const register = (name) => call("PUT", `/v1/device/news/${name}`, { country: "IE" });

export const push = (name, page) =>
  call("POST", "/v1/message/push/news", {
    type: 2, time_to_live: 600, condition: { type: 2, client_ids: [name] }, data: { page },
  });

/** Waits until a condition holds, and returns its value. */
export async function eventually(what, condition) {
  for (const end = Date.now() + 30_000; Date.now() < end; ) {
    const value = await condition();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`not within 30 s: ${what}`);
}

// Calls the service with the types that openapi-typescript has generated.

import createClient from "openapi-fetch";
import type { components, paths } from "./push.js";

declare const process: { env: Record<string, string> };

type Push = components["schemas"]["Push"];

const client = createClient<paths>({
  baseUrl: process.env["PUSH_SERVER"],
  headers: { Authorization: process.env["PUSH_SECRET"] },
});
const AppID = "clients";

function check(holds: boolean, shown: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(shown));
}

const push = (body: Push, key?: string) =>
  client.POST("/v1/message/push/{AppID}", {
    params: { path: { AppID }, header: key === undefined ? {} : { "Idempotency-Key": key } },
    body,
  });

const reportOf = (message_id: string) =>
  client.GET("/v1/message/{AppID}/{message_id}", { params: { path: { AppID, message_id } } });

const register = (ClientID: string, body: components["schemas"]["DeviceDraft"]) =>
  client.PUT("/v1/device/{AppID}/{ClientID}", { params: { path: { AppID, ClientID } }, body });

// `discard` takes every message and sends nothing.
const registered = await register("typescript-1", {
  country: "DE",
  language: "de-DE",
  transport: "discard",
});
check(registered.data?.result.language === "de-de", registered);
check(registered.data.result.transport === "discard", registered);

const phone = await register("typescript-2", { country: "Nowhere" });
check(phone.data?.result.mqtt?.topic === "push/clients/typescript-2", phone);
check(phone.data.result.warnings?.[0]?.includes("country") === true, phone);

const checked = await push({
  type: 1,
  time_to_live: 60,
  condition: { type: 1, targeting: { country: ["DE"] } },
  notification: { title: "Hallo", notification_type: 1, open_type: 1 },
  priority: "high",
  dry_run: true,
});
check(checked.data !== undefined, checked);
const unsent = await reportOf(checked.data.result.message_id);
check(unsent.error?.status === 404, unsent);

const toOne: Push = {
  type: 2,
  time_to_live: 60,
  condition: { type: 2, client_ids: ["typescript-1"] },
  data: { order: "4712" },
};
const keyed = await push(toOne, "order-4712");
const again = await push(toOne, "order-4712");
check(keyed.data?.result.message_id === again.data?.result.message_id, [keyed, again]);
const sent = await push(toOne);
check(sent.data !== undefined, sent);

const deadline = Date.now() + 20_000;
let report = await reportOf(sent.data.result.message_id);
while (report.data?.result.state !== "done") {
  check(Date.now() < deadline, report);
  await new Promise((resolve) => setTimeout(resolve, 50));
  report = await reportOf(sent.data.result.message_id);
}
const { targeted, sent: delivered, pending } = report.data.result;
check(targeted === 1 && delivered === 1 && pending === 0, report);

const refused = await push({ ...toOne, condition: { type: 2 } });
check(refused.response.status === 400 && refused.error?.status === 21005, refused);
check(refused.error.message.includes("client_ids"), refused);

// What the service would refuse does not compile, where a type can say it.
// @ts-expect-error There is no third type.
const ofNoType: Push = { ...toOne, type: 3 };
// @ts-expect-error A value of data is a text.
const ofNumbers: Push = { ...toOne, data: { order: 4712 } };
// @ts-expect-error A misspelt list would widen the audience.
const misspelt: Push = { ...toOne, condition: { type: 1, targeting: { contry: ["DE"] } } };
void [ofNoType, ofNumbers, misspelt];

// Watches a broadcast to a million devices to its end on its page in a real browser, and recalls another from its
// page. What the pages say must be what the ledger says. Prints the figures, and ends with 1 if anything is wrong.
//
// Usage: node million.mjs LINK PICTURES PUSHCTL DATA_DIR
// LINK signs in. PICTURES is a folder that gets pictures. PUSHCTL is the program, and DATA_DIR the data directory
// of the service, in which the app `million` has a million devices on the transport `discard`.

import { createRequire } from "node:module";
import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

const { chromium } = createRequire(import.meta.url)("playwright-core");

const DEVICES = 1_000_000;
const app = "million";
const [link, pictures, pushctl, dataDir] = process.argv.slice(2);
const origin = new URL(link).origin;
mkdirSync(pictures, { recursive: true });

const wrong = [];
const check = (holds, text) => { if (!holds) wrong.push(text); };
const ledger = (id) =>
  JSON.parse(execFileSync(pushctl, ["--data-dir", dataDir, "message", "show", app, id, "--json"], { encoding: "utf8" }));

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-dev-shm-usage"],
});
const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
await page.goto(link);

// The numbers beside the bars: { Targeted: 1000000, Sent: 51200, … }, and the state.
const funnel = () => page.evaluate(() => {
  const steps = { state: document.querySelector("#funnel .tag")?.textContent };
  for (const bar of document.querySelectorAll(".funnel progress")) {
    steps[bar.previousElementSibling.textContent] = Number(bar.nextElementSibling.textContent.replaceAll(",", ""));
  }
  return steps;
});

// Sets the pace of the app on its page; an empty one is none.
const pace = async (devices) => {
  await page.goto(`${origin}/apps/${app}`);
  await page.click("summary:has-text('Change')");
  await page.fill("#pace", String(devices));
  await page.click("button:has-text('Save')");
  await page.locator("h1").first().waitFor();
};

// Composes a broadcast, confirms it, and returns the id of its message, whose page is open then.
const send = async (title) => {
  await page.goto(`${origin}/compose?app=${app}&title=${encodeURIComponent(title)}&desc=To+everyone`);
  await page.locator("#preview strong:has-text('1,000,000 devices')").waitFor({ timeout: 30_000 });
  await page.click("button:has-text('Check and send')");
  await page.fill("#confirm", app);
  await page.click("button:has-text('Send now')");
  await page.waitForURL(/\/messages\//);
  return new URL(page.url()).pathname.split("/").at(-1);
};

// Looks at the page until the state is one of these, and returns every different look.
const watch = async (states, most = 120_000) => {
  const looks = [];
  for (const end = Date.now() + most; Date.now() < end; await page.waitForTimeout(50)) {
    const look = await funnel().catch(() => undefined);
    if (look?.Targeted === undefined) continue;
    if (JSON.stringify(look) !== JSON.stringify(looks.at(-1))) looks.push(look);
    if (states.includes(look.state)) return looks;
  }
  throw new Error(`the page does not come to ${states}: ${JSON.stringify(looks.at(-1))}`);
};

const agree = (what, look, entry) => {
  const { targeted, sent, expired, recalled, pending } = entry;
  const failed = Object.values(entry.failed).reduce((sum, count) => sum + count, 0);
  const says = { Targeted: targeted, Sent: sent, Failed: failed, Expired: expired, Recalled: recalled, Pending: pending };
  for (const [step, count] of Object.entries(says)) {
    check(look[step] === count, `${what}: ${step} is ${look[step]} on the page, ${count} in the ledger`);
  }
  check(look.state === entry.state, `${what}: ${look.state} on the page, ${entry.state} in the ledger`);
};

// One that runs to its end.
const first = await send("A million");
const begun = Date.now();
const under = watch(["done"]);
await page.waitForTimeout(1500);
await page.screenshot({ path: join(pictures, "million-under-way.png"), fullPage: true });
const looks = await under;
const seconds = (Date.now() - begun) / 1000;
for (let at = 1; at < looks.length; at += 1) {
  check(looks[at].Sent >= looks[at - 1].Sent, `the page goes back: ${looks[at - 1].Sent}, then ${looks[at].Sent}`);
}
check(looks.length > 2, `the page showed ${looks.length} states on the way`);
check(looks.at(-1).Sent === DEVICES, `the page ends at ${looks.at(-1).Sent} sent`);
agree("the end", looks.at(-1), ledger(first));
console.log(`watched to its end in ${seconds.toFixed(1)} s: ${looks.map((look) => look.Sent).join(", ")} sent`);

// One that is recalled from its page, at a pace that leaves the time for that.
await pace(20_000);
const second = await send("Recall me");
while (!((await funnel().catch(() => ({}))).Sent > 0)) await page.waitForTimeout(50);
await page.click("summary:has-text('Recall this message')");
await page.screenshot({ path: join(pictures, "million-recall.png"), fullPage: true });
await page.click("button:has-text('Recall it now')");
await page.locator("a:has-text('See the message')").waitFor({ timeout: 60_000 });
const receipt = await funnel();
await page.screenshot({ path: join(pictures, "million-receipt.png"), fullPage: true });
await page.click("a:has-text('See the message')");
let last;
for (const end = Date.now() + 60_000; Date.now() < end; await page.waitForTimeout(200)) {
  last = ledger(second);
  if (last.pending === 0 && last.targeted === DEVICES) break;
}
await page.reload();
await page.screenshot({ path: join(pictures, "million-recalled.png"), fullPage: true });
agree("the recall", await funnel(), last);
check(last.state === "recalled", `the ledger says ${last.state}`);
check(last.sent + last.recalled === DEVICES, `${last.sent} sent and ${last.recalled} recalled`);
check(last.sent >= receipt.Sent && last.sent < DEVICES / 2, `${receipt.Sent} sent at the recall, ${last.sent} at the end`);
console.log(`recalled: ${receipt.Sent} sent by the receipt; the ledger ends with ${last.sent} sent, ${last.recalled} recalled`);

await browser.close();
for (const text of new Set(wrong)) console.log(`WRONG: ${text}`);
console.log(wrong.length ? `${wrong.length} wrong` : "all right");
process.exit(wrong.length ? 1 : 0);

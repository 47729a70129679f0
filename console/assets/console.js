// What the pages do beyond htmx. Every page works without it.

// A table row is as easy to choose as its box.
document.addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (!row || event.target.closest("a, button, input, summary, details, pre")) return;
  const box = row.querySelector("input[type=checkbox]");
  if (box) box.checked = !box.checked;
});

// Choosing an app on a list shows it at once.
document.addEventListener("change", (event) => {
  const form = event.target.closest("form.filter[method=get]");
  if (form && event.target.matches("select")) form.requestSubmit();
});

// A session that has ended leads to the sign-in page, not into a part of this one.
document.addEventListener("htmx:after:request", (event) => {
  if (event.detail?.ctx?.response?.status === 401) location.reload();
});

// The script of one page.
const page = document.querySelector("[data-script]");
if (page) import(page.dataset.script);

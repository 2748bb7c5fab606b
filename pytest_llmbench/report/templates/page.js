"use strict";

async function unpacked(script) {
  const bytes = Uint8Array.from(atob(script.textContent), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

async function open(section) {
  const script = section.querySelector(":scope > script");
  if (script) {
    script.remove();
    section.innerHTML = await unpacked(script);
  }
}

function target() {
  try {
    return document.getElementById(decodeURIComponent(location.hash.slice(1)));
  } catch {
    return null;
  }
}

async function show() {
  const wanted = target();
  const section = wanted?.closest("main > section") ?? document.querySelector("main > section");
  await open(section);
  const heading = section.querySelector("h1");
  document.title = `${heading.textContent} · llmbench`;
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.hash === `#${section.id}`) {
      link.setAttribute("aria-current", "page");
    } else {
      link.removeAttribute("aria-current");
    }
  }
  if (wanted === section) {
    scrollTo(0, 0);
    heading.focus({ preventScroll: true });
  }
}

document.addEventListener(
  "toggle",
  async ({ target: details }) => {
    const place = details.querySelector(":scope > [data-prompt]:empty");
    if (details.open && place) {
      place.innerHTML = await unpacked(document.getElementById(place.dataset.prompt));
    }
  },
  true,
);
addEventListener("hashchange", show);
show();

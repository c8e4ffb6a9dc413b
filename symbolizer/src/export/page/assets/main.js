// Reads the data and starts. What a console may ask for is in `rawstack`.

function rowsOf(app) {
  const { profile, sums } = app;
  const rows = [];
  for (let id = 0; id < profile.functionCount; id++) {
    if (sums.total[id] === 0) continue;
    rows.push({
      name: app.table.nameOf(id),
      module: app.table.moduleOf(id),
      self: sums.own[id],
      total: sums.total[id],
      inlined: profile.functionInlined[id],
    });
  }
  return rows;
}

async function main() {
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const profile = await readProfile(by("profile"));
  const app = new App(profile);
  app.start();
  window.rawstack = Object.freeze({
    unit: profile.head.unit,
    rows: () => rowsOf(app),
    // Of each function where it stands in the source.
    places: () => Array.from(profile.functionFrame, (frame) => ({
      name: profile.strings[profile.name[frame]],
      module: profile.strings[profile.module[frame]],
      place: placeOf(profile, frame),
    })),
    total: () => app.whole,
    // Nanoseconds since the start, or null for all.
    span: () => app.state.span?.map((slot) => slot * profile.head.slot_ns) ?? null,
    state: () => structuredClone(app.state),
  });
  // Two frames later it has been painted.
  requestAnimationFrame(() => requestAnimationFrame(() => {
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  }));
}

main().catch((error) => {
  by("title").textContent = "This page could not be shown";
  by("facts").textContent = `${error.message}. A current Chromium, Firefox or Safari is needed.`;
});

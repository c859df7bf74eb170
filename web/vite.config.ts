/// <reference types="vitest/config" />
import { defineConfig, type Plugin } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

/** `vite dev` has no report: it serves the fixture, or the JSON document that REPORT names. */
function sampleData(): Plugin {
  return {
    name: "etscope-sample-data",
    apply: "serve",
    configureServer(server) {
      server.middlewares.use("/data.json", (_request, response) => {
        void (async () => {
          const { sampleText } = await server.ssrLoadModule("/test/sample.ts");
          response.setHeader("Content-Type", "application/json");
          response.end(await sampleText());
        })();
      });
    },
  };
}

export default defineConfig({
  // A page that is opened from a file or mounted below any path: all addresses are relative.
  base: "./",
  plugins: [sampleData(), viteSingleFile({ removeViteModuleLoader: true })],
  // Inline workers of the "es" format do not start on pages from file://.
  worker: { format: "iife" },
  build: {
    target: "es2022",
    outDir: "../src/etscope/views/page/_built",
    emptyOutDir: true,
    // Everything is in one file: a library's size is of no interest.
    chunkSizeWarningLimit: 4096,
    rolldownOptions: { input: "page.html" },
  },
  server: { open: false },
  test: { environment: "node", include: ["test/**/*.test.{ts,tsx}"], setupFiles: ["test/effects.ts"] },
});

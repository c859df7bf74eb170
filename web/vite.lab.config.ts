import { defineConfig } from "vite";

/** The script of the lab's pages: one file, and the style of its charts. */
export default defineConfig({
  build: {
    target: "es2022",
    outDir: "../packages/etscope-lab/src/etscope_lab/pages/_built",
    emptyOutDir: true,
    lib: {
      entry: "src/lab/main.ts",
      formats: ["iife"],
      name: "etscopeLab",
      fileName: () => "lab.js",
      cssFileName: "charts",
    },
  },
});

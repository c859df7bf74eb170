// Effects run before a test file ends. By default Preact runs them 35 ms after a frame: jsdom, and
// what effects need of it, may be gone by then.

import { options } from "preact";

options.requestAnimationFrame = queueMicrotask;

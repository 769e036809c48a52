import "@fontsource-variable/inter/wght.css";
import "@fontsource-variable/jetbrains-mono/wght.css";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/pages.css";
import "./nonce.ts";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import { PageBoundary } from "./boundary.tsx";
import { applyTheme } from "./theme.ts";

applyTheme();
const root = document.getElementById("root");
if (root) createRoot(root).render(<StrictMode><PageBoundary at=""><App /></PageBoundary></StrictMode>);

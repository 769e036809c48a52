// The rules of eslint and typescript-eslint that find defects. They know the types, so that a
// promise nobody waits for is found. How the code looks is not among them.
import { join } from "node:path";
import tseslint from "typescript-eslint";

export default tseslint.config({
  files: ["src/**/*.ts"],
  ignores: ["src/openapi.ts", "src/schemas.ts"], // generated
  extends: [tseslint.configs.recommendedTypeChecked],
  rules: { "@typescript-eslint/no-unused-vars": ["error", { ignoreRestSiblings: true }] }, // names taken out of an object
  languageOptions: { parserOptions: { project: join(import.meta.dirname, "../tsconfig.json") } },
});

// The rules of the TypeScript SDK (sdk/typescript/tools/eslint.config.mjs), and React's rules of hooks.
import hooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config({
	files: ["src/**/*.{ts,tsx}"],
	extends: [tseslint.configs.recommendedTypeChecked],
	plugins: { "react-hooks": hooks },
	rules: {
		"react-hooks/rules-of-hooks": "error",
		"react-hooks/exhaustive-deps": "error",
		"@typescript-eslint/no-unused-vars": ["error", { ignoreRestSiblings: true }],
		// Handlers of events may be asynchronous; each shows its own errors.
		"@typescript-eslint/no-misused-promises": ["error", { checksVoidReturn: { attributes: false } }],
	},
	languageOptions: { parserOptions: { project: "./tsconfig.json", tsconfigRootDir: import.meta.dirname } },
});

// Without this file, the compiler refuses functions without a body.

// Package netrule holds the rules of a sandbox about the destinations that it may reach: addresses,
// ranges and names.
//
//	rules, err := netrule.Parse(netrule.List{Field: "allow_out", Entries: []string{"pypi.org", "*.pythonhosted.org"}},
//		netrule.List{Field: "deny_out", Entries: []string{netrule.Everything}})
//	rules.Address(addr)        // by the ranges alone
//	rules.Name("pypi.org")     // by the names alone
//	rules.Resolves("evil.org") // whether its resolver may answer the name
//
// An allowed destination stays allowed if a denied range contains it, and what neither list contains
// is allowed. Rules only refuse: they open nothing that is closed for every sandbox.
package netrule

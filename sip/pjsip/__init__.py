"""PJSIP as second engine of calls, in processes of four calls; docs/design.md, "PJSIP behind our stack"."""

/* The packages of an environment (§6.2): which names are let through to a package manager, and one
   canonical text for equal wishes, which is what derived images are cached by: a line a package,
   "apt:jq\nnpm:typescript@5.4.2\n", by kind, sorted, each once. A name is a name with at most a
   version: no option, URL, path or repository fits. Pure functions, any thread. */
#ifndef SANDBOX_PACKAGES_H
#define SANDBOX_PACKAGES_H

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

#define PACKAGES_TEXT_MAX 4096 /* bytes of the canonical text, with its NUL */
#define PACKAGES_EACH_MAX 100  /* packages of one kind */

enum package_kind {
    PACKAGE_APT,
    PACKAGE_NPM,
    PACKAGE_PIP,
    PACKAGE_KINDS
};

extern const char *const package_kinds[PACKAGE_KINDS]; /* as members of `packages` */

/* E_INVALID says what a name of that kind looks like. */
err package_check(enum package_kind kind, struct str name);
/* {apt: ["jq"], …} → canonical text; "" for null and for no packages. E_INVALID for what is not
   that, E_TOO_LARGE beyond PACKAGES_TEXT_MAX. */
err packages_canonical(const json_t *packages, struct buf *out);
/* Calls fn for each line. E_INVALID unless the text is canonical in form (order is not looked at);
   an error of fn ends it. */
typedef err (*package_fn)(void *arg, enum package_kind kind, struct str name);
err packages_each(struct str text, package_fn fn, void *arg);

#endif

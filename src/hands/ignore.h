/* Which files a search leaves out, by the rules of ripgrep and fd: .gitignore, .git/info/exclude,
   .ignore and .fdignore of each folder and those above it, and the user's global ones. A chain
   holds one level per folder, from the root of the file system down; push on the way in, pop on the
   way out. One thread. */
#ifndef HANDS_IGNORE_H
#define HANDS_IGNORE_H

#include "base/str.h"

#include <stdbool.h>

struct ignore;

/* For a search of `root` (absolute, canonical): reads the rules of the folders above it.
   needs_git: .gitignore counts inside repositories only. cwd: where the global rules are rooted. */
struct ignore *ignore_new(const char *root, bool needs_git, const char *cwd);
void ignore_free(struct ignore *g); /* NULL-safe */
/* Enters a folder below the last one pushed (absolute path); the first one is the root. */
void ignore_push(struct ignore *g, const char *folder);
void ignore_pop(struct ignore *g);
/* Whether an entry (absolute path) of the folder last pushed is left out. */
bool ignore_matches(const struct ignore *g, struct str path, bool is_folder);

#endif

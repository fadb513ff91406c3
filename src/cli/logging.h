/* --log-format and --log-level: their words, for serve and for the roles it starts. */
#ifndef CLI_LOGGING_H
#define CLI_LOGGING_H

#include "base/log.h"

/* "json" or "text"; "auto" and anything else: text on a terminal. */
enum log_format logging_format(const char *name);
const char *logging_format_name(enum log_format format);
/* "debug", "info", "warn", "error"; anything else is info. */
enum log_level logging_level(const char *name);

#endif

/* What a file is, judged by its name alone. Any thread. */
#ifndef API_MIME_H
#define API_MIME_H

/* "report.html" → "text/html"; application/octet-stream for a name that says nothing. */
const char *mime_of_name(const char *name);

#endif

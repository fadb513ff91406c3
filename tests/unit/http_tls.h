/* A key and a certificate for servers of tests. */
#ifndef TESTS_HTTP_TLS_H
#define TESTS_HTTP_TLS_H

#include "http_raw.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

static inline char *tls_pem_of(int (*write)(BIO *, const void *), const void *object)
{
    BIO *b = BIO_new(BIO_s_mem());
    assert_int_equal(write(b, object), 1);
    char *p;
    long n = BIO_get_mem_data(b, &p);
    char *text = strndup(p, (size_t)n);
    BIO_free(b);
    return text;
}

static inline int tls_write_key(BIO *b, const void *key)
{
    return PEM_write_bio_PrivateKey(b, key, NULL, NULL, 0, NULL, NULL);
}

static inline int tls_write_certificate(BIO *b, const void *certificate)
{
    return PEM_write_bio_X509(b, certificate);
}

/* For localhost, signed by itself; PEM texts, to be freed. */
static inline void tls_make_certificate(char **out_cert, char **out_key)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 24 * 3600);
    X509_set_pubkey(x, key);
    X509_NAME *name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1,
                               0);
    X509_set_issuer_name(x, name);
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    *out_cert = tls_pem_of(tls_write_certificate, x);
    *out_key = tls_pem_of(tls_write_key, key);
    X509_free(x);
    EVP_PKEY_free(key);
}

#endif

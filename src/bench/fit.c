#include "bench/fit.h"

#include <math.h>

#define N_TERMS 3
#define SINGULAR 1e-12 /* of the largest diagonal; x is scaled to 1 */

/* Gauss with the largest pivot; rows of terms that are left out are skipped. */
static bool solve(double m[N_TERMS][N_TERMS + 1], int n, double out[N_TERMS]) {
    double largest = 0;
    for (int i = 0; i < n; i++) largest = fmax(largest, fabs(m[i][i]));
    for (int i = 0; i < n; i++) {
        int pivot = i;
        for (int r = i + 1; r < n; r++)
            if (fabs(m[r][i]) > fabs(m[pivot][i])) pivot = r;
        if (fabs(m[pivot][i]) <= SINGULAR * largest) return false;
        for (int c = 0; c <= n; c++) {
            double swap = m[i][c];
            m[i][c] = m[pivot][c];
            m[pivot][c] = swap;
        }
        for (int r = i + 1; r < n; r++) {
            double factor = m[r][i] / m[i][i];
            for (int c = i; c <= n; c++) m[r][c] -= factor * m[i][c];
        }
    }
    for (int i = n - 1; i >= 0; i--) {
        out[i] = m[i][n];
        for (int c = i + 1; c < n; c++) out[i] -= m[i][c] * out[c];
        out[i] /= m[i][i];
    }
    return true;
}

/* With the terms of a set alone; x in units of scale. */
static bool fit_terms(const double *x, const double *y, int n, double scale, unsigned set, double out[N_TERMS]) {
    double m[N_TERMS][N_TERMS + 1] = {{0}}, found[N_TERMS] = {0};
    int terms[N_TERMS], n_terms = 0;
    for (int t = 0; t < N_TERMS; t++) {
        out[t] = 0;
        if (set & (1U << t)) terms[n_terms++] = t;
    }
    for (int i = 0; i < n; i++) {
        double powers[N_TERMS] = {1, x[i] / scale, x[i] / scale * (x[i] / scale)}, weight = 1 / (y[i] * y[i]);
        for (int r = 0; r < n_terms; r++) {
            for (int c = 0; c < n_terms; c++) m[r][c] += weight * powers[terms[r]] * powers[terms[c]];
            m[r][n_terms] += weight * powers[terms[r]] * y[i];
        }
    }
    if (!solve(m, n_terms, found)) return false;
    for (int t = 0; t < n_terms; t++) out[terms[t]] = found[t];
    return true;
}

static void judge(const double *x, const double *y, int n, struct fit *fit) {
    double sum = 0;
    fit->max_share = 0;
    for (int i = 0; i < n; i++) {
        double share = fabs(fit_at(fit, x[i]) - y[i]) / y[i];
        sum += share * share;
        fit->max_share = fmax(fit->max_share, share);
    }
    fit->rms_share = sqrt(sum / n);
}

double fit_at(const struct fit *fit, double x) {
    return fit->a + fit->b * x + fit->c * x * x;
}

bool fit_polynomial(const double *x, const double *y, int n, int degree, struct fit *out) {
    double scale = 0, terms[N_TERMS];
    bool is_found = false;
    int n_different = 0;
    for (int i = 0; i < n; i++) {
        bool is_new = true;
        scale = fmax(scale, x[i]);
        for (int k = 0; k < i; k++) is_new = is_new && x[k] != x[i];
        n_different += is_new;
    }
    if (n_different <= degree) return false;
    /* The best of all sets of terms whose solution has none below 0: there are seven. */
    for (unsigned set = 1; set < 2U << degree; set++) {
        if (!fit_terms(x, y, n, scale, set, terms) || terms[0] < 0 || terms[1] < 0 || terms[2] < 0) continue;
        struct fit fit = {terms[0], terms[1] / scale, terms[2] / (scale * scale), 0, 0};
        judge(x, y, n, &fit);
        if (is_found && fit.rms_share >= out->rms_share) continue;
        *out = fit;
        is_found = true;
    }
    return is_found;
}
